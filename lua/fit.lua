-- The booking rule: the first instant from which a window has room.
--
-- A part of reserve.lua, and the law of first_fit in quotaclient/_core/window.py: a change here is a
-- change there.
--
-- KEYS          those of reserve.lua
-- ARGV          none
-- Returns       nothing: it goes on with `first_fit`
-- Units         instants and spans are whole microseconds.

-- The numbers of a window's runs in order of `by`; nil when that is the order of `at`, as it is
-- unless guards differ.
local function order_of_ends(window, runs)
  if window.ordered == 1 then
    return nil
  end
  local order = {}
  for i = 1, #runs, 3 do
    order[#order + 1] = i
  end
  table.sort(order, function(left, right)
    return runs[left + 1] < runs[right + 1]
  end)
  return order
end

-- The short way where nothing lies ahead: enough of the oldest runs have to leave. The first instant
-- >= start when they have, and what is occupied then; nil if the stored rows are not enough.
local function when_enough_left(window, start, room)
  local left, at, row = window.total, start, window.first
  while row < window.stored do
    local from, upto = HEAD + row * ROW, HEAD + math.min(row + 5, window.stored) * ROW
    local packed = call('GETRANGE', window.key, from, upto - 1)
    for place = 1, #packed, ROW do
      local _, by, units = struct.unpack(RUN, packed, place)
      local leaves = by + window.period
      if left <= room and leaves > at then
        return at, left
      end
      at, left = math.max(at, leaves), left - units
    end
    row = row + 5
  end
end

-- The first instant >= start from which occupancy never exceeds limit - cost throughout
-- guard + period, and the most that is occupied from it on.
local function first_fit(window, start, cost)
  if window.first_fit then
    return window.first_fit(window, start, cost)
  end
  local room = window.limit - cost
  if window.total <= room then
    return start, window.total
  end
  if not window.runs and window.last_at <= start and window.ordered == 1 then
    local at, left = when_enough_left(window, start, room)
    if at then
      return at, left
    end
  end
  local runs, period = runs_of(window), window.period
  local order, length = order_of_ends(window, runs), #runs
  local function place(number)
    return order and order[number] or 3 * number - 2
  end
  -- s: the next run to start, of which few lie ahead; e: the number of the next to end.
  local occupied, s, e = window.total, length + 1, 1
  while s > 1 and runs[s - 3] > start do
    s = s - 3
    occupied = occupied - runs[s + 2]
  end
  local ending = place(e)
  while ending and ending <= length and runs[ending + 1] + period <= start do
    occupied = occupied - runs[ending + 2]
    e = e + 1
    ending = place(e)
  end
  local fit, peak, ends = nil, 0, ends_of(window, start + guard)
  if occupied <= room then
    fit, peak = start, occupied
  end
  -- After the last start it only falls.
  while not fit or s <= length do
    local instant = runs[ending + 1] + period
    if s <= length and runs[s] < instant then
      instant = runs[s]
    end
    if fit and instant >= ends then
      break
    end
    while ending <= length and runs[ending + 1] + period == instant do
      occupied = occupied - runs[ending + 2]
      e = e + 1
      ending = place(e)
      if not ending then
        ending = length + 1
      end
    end
    while s <= length and runs[s] == instant do
      occupied = occupied + runs[s + 2]
      s = s + 3
    end
    if occupied > room then
      fit = nil
    elseif not fit then
      fit, peak, ends = instant, occupied, ends_of(window, instant + guard)
    else
      peak = math.max(peak, occupied)
    end
  end
  return fit, peak
end
