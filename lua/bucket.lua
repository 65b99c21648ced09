-- Buckets: a level that every unit raises, and that falls steadily, down to 0.
--
-- A part of reserve.lua, for asks that have such windows, and the law of quotaclient/_core/bucket.py,
-- in the same steps, so that fractions are the same: a change here is a change there. What lies
-- behind is one run, whose units are the debt left.
--
-- KEYS          those of reserve.lua
-- ARGV          how many, then each: window, units regained in a period
-- Returns       nothing: it goes on to the next part
-- Units         instants and spans are whole microseconds; windows are numbered from 1.

-- What happens at each instant at which anything does, in order.
local function changes_of(runs)
  local found, changes = {}, {}
  local function add(instant, starts, flight, debt)
    local change = found[instant]
    if not change then
      change = {instant = instant, starts = false, flight = 0, debt = 0}
      found[instant], changes[#changes + 1] = change, change
    end
    change.starts = change.starts or starts
    change.flight, change.debt = change.flight + flight, change.debt + debt
  end
  for i = 1, #runs, 3 do
    local flies = runs[i + 1] > runs[i] and runs[i + 2] or 0
    add(runs[i], true, flies, 0)
    add(runs[i + 1], false, -flies, runs[i + 2])
  end
  table.sort(changes, function(left, right)
    return left.instant < right.instant
  end)
  return changes
end

-- Go on to an instant before which nothing changes.
local function fall(level, instant)
  local passed = instant - level.instant
  level.debt = math.max(0, level.debt - passed * level.count / level.period)
  level.instant = instant
end

-- Go on to the next change.
local function step(level)
  local change = level.changes[level.place]
  fall(level, change.instant)
  level.flight, level.debt = level.flight + change.flight, level.debt + change.debt
  level.place = level.place + 1
  return change
end

-- Go on to an instant, through all that changes until then.
local function go_to(level, instant)
  while level.changes[level.place] and level.changes[level.place].instant <= instant do
    step(level)
  end
  fall(level, instant)
end

-- A walk through the changes ahead: what is in flight, and the debt, at an instant. The window keeps
-- it at its last fit: who books there looks for the next from there on.
local function level_at(window, start)
  local level = window.level
  if not level or level.instant > start then
    level = {
      changes = changes_of(window.runs), place = 1, count = window.count, period = window.period,
      instant = math.min(start, window.runs[1] or start), flight = 0, debt = 0,
    }
    window.level = level
  end
  go_to(level, start)
  return level
end

-- Count units that may go from an instant to `by`, if the level is there.
local function book_in_level(window, at, by, units)
  local level = window.level
  if not level or level.instant ~= at then
    window.level = nil
    return
  end
  if by <= at then
    level.debt = level.debt + units
    return
  end
  level.flight = level.flight + units
  local changes, place = level.changes, #level.changes + 1
  while place > level.place and changes[place - 1].instant >= by do
    place = place - 1
  end
  local there = changes[place]
  if there and there.instant == by then
    there.flight, there.debt = there.flight - units, there.debt + units
  else
    table.insert(changes, place, {instant = by, starts = false, flight = -units, debt = units})
  end
end

-- Go on to the first instant at which the level is no higher than `room`.
local function to_room(level, room)
  while level.flight + level.debt > room do
    local coming, ready = level.changes[level.place], nil
    if level.flight <= room then
      local above = level.debt - (room - level.flight)
      ready = level.instant + math.ceil(above * level.period / level.count)
    end
    if not coming or (ready and ready < coming.instant) then
      fall(level, ready)
      return  -- it may be above by a rounding
    end
    step(level)
  end
end

-- The highest level there will be when units may start, not counting a unit that may go from here
-- to `by`, and the first such instant at which with it that is above the limit.
local function peak_with(level, cost, limit, by)
  local ahead, peak, landed = {}, level.flight + level.debt, false
  for field, value in pairs(level) do
    ahead[field] = value
  end
  ahead.flight = ahead.flight + cost
  while ahead.changes[ahead.place] do
    if not landed and by <= ahead.changes[ahead.place].instant then
      fall(ahead, by)
      ahead.flight, ahead.debt, landed = ahead.flight - cost, ahead.debt + cost, true
    end
    local change = step(ahead)
    if change.starts then
      local height = ahead.flight + ahead.debt
      if height > limit then
        return peak, change.instant
      end
      peak = math.max(peak, height - cost)
    end
  end
  return peak, nil
end

-- Make one run of all that has landed; when nothing is left, this life ends.
local function fold(window)
  local runs, folded = window.runs, {}
  local level = level_at(window, now)
  local landed = level.debt > 0
  local function add(at, by, units)
    folded[#folded + 1], folded[#folded + 2], folded[#folded + 3] = at, by, units
    window.total = window.total + units
  end
  window.total = 0
  for i = 1, #runs, 3 do
    if landed and runs[i] > now then
      add(now, now, level.debt)
      landed = false
    end
    if runs[i + 1] > now then
      add(runs[i], runs[i + 1], runs[i + 2])
    end
  end
  if landed then
    add(now, now, level.debt)
  end
  if level.debt > 0 then
    window.last_by = math.max(window.last_by, now)
  end
  if #folded == 0 then
    window.generation, window.last_by = 0, 0
  end
  window.runs, window.changed, window.level = folded, #folded > 0, nil
end

local function first_fit_in_bucket(window, start, cost)
  local room = window.limit - cost
  if window.total <= room then
    return start, math.ceil(window.total)
  end
  local level = level_at(window, start)
  while true do
    to_room(level, room)
    local peak, clash = level.flight + level.debt, nil
    if level.instant < window.runs[#window.runs - 2] then
      peak, clash = peak_with(level, cost, window.limit, level.instant + guard)
    end
    if not clash then
      return level.instant, math.min(math.ceil(peak), room)  -- it may be above by a rounding
    end
    go_to(level, clash)
  end
end

local function stays_in_bucket(window)
  local runs, debt = window.runs, 0
  for i = 1, #runs, 3 do
    if runs[i] <= now then
      debt = debt + runs[i + 2]
    end
  end
  return math.max(debt - horizon * window.count / window.period, 0)
end

for _ = 1, take() do
  local window = windows[take()]
  local packed = call('GET', window.key)
  window.count = take()
  window.first_fit, window.booked, window.stays = first_fit_in_bucket, book_in_level, stays_in_bucket
  window.runs, window.dirty = {}, 1  -- written whole: what has landed becomes one run each time
  if packed then
    local past
    window.generation, window.total, window.last_by, window.first, past = struct.unpack(HEADER, packed)
    local rows = packed:sub(HEAD + window.first * ROW + 1, HEAD + past * ROW)
    window.runs = {struct.unpack('<' .. string.rep('d', #rows / 8), rows)}
    window.runs[#window.runs] = nil
  end
  fold(window)
end
