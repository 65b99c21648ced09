-- What comes back, and what was sent elsewhere.
--
-- A part of reserve.lua, for asks that bring any, and the law of give_back and book_late in
-- quotaclient/_core/window.py and bucket.py: a change here is a change there.
--
-- KEYS          those of reserve.lua
-- ARGV          how many give-backs, then each: window, generation, at, by, units
--               how many sends, then each: window, ago, until, units
-- Returns       nothing: it goes on
-- Units         instants and spans are whole microseconds; windows are numbered from 1.

-- What was sent without having been booked counts while it matters. Whether it has drained from a
-- bucket since depends on what is forgotten: there it counts in full.
local function book_late(window, at, by, units)
  if window.count then
    if by <= now then
      at, by = now, now
    end
    book(window, at, by, units)
  elseif ends_of(window, by) > now then
    book(window, at, by, units)
  end
end

-- Whether units of [at, by] still count as such: all that have landed in a bucket are one debt.
local function matters(window, at, by)
  if window.count then
    return by > now or at == now
  end
  return ends_of(window, by) > now
end

local function give_back(window, generation, at, by, units)
  if units < 0 then  -- sent on top of what was granted, in whichever life
    book_late(window, at, by, -units)
    return
  end
  local other = generation ~= window.generation and generation ~= 0  -- 0: there was no record
  if other or not matters(window, at, by) then
    return
  end
  if window.covered then
    at, by = window.covered(at, by)
  end
  -- Of joined runs several may hold them: from now on all of those count as long as the one that
  -- ends first and starts last, or longer, so that one gives.
  local runs, holder, latest = runs_of(window), nil, now
  for i = 1, #runs, 3 do
    if runs[i] == at and runs[i + 1] == by then
      holder, latest = i, now
      break
    elseif runs[i] <= at and by <= runs[i + 1] then
      latest = math.max(latest, runs[i])
      if not holder or runs[i + 1] <= runs[holder + 1] then
        holder = i
      end
    end
  end
  if not holder or math.max(runs[holder], now) < latest then
    return
  end
  local taken = math.min(units, runs[holder + 2])
  runs[holder + 2] = runs[holder + 2] - taken
  window.total = window.total - taken
  window.changed, window.dirty = true, math.min(window.dirty, holder)
  if runs[holder + 2] == 0 then
    for _ = 1, 3 do
      table.remove(runs, holder)
    end
  end
end

for _ = 1, take() do
  give_back(windows[take()], take(), take(), take(), take())
end

for _ = 1, take() do
  local window, ago, till, units = windows[take()], take(), take(), take()
  book_late(window, now - ago, now - till, units)
end
