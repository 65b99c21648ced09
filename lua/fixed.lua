-- Fixed windows: so many units in each period of a calendar.
--
-- A part of reserve.lua, for asks that have such windows, and the law of quotaclient/_core/fixed.py
-- and calendar.py: a change here is a change there. A run is kept as the periods that it touches.
--
-- KEYS          those of reserve.lua
-- ARGV          how many, then each: window, and what to add to UTC for the time in its zone:
--               offset, the instant at which that changes (0: never), offset after it
-- Returns       nothing: it goes on to the next part
-- Units         instants and spans are whole microseconds; windows are numbered from 1.

-- Beginning and end of the period that an instant is in.
local function bounds(instant, period, offset, change, after)
  if change == 0 then
    local start = math.floor((instant + offset) / period) * period - offset
    return start, start + period
  end
  local first = math.floor((change + after) / period)  -- the period that the change leads into
  if instant < change then
    local number = math.min(math.floor((instant + offset) / period), first)
    local ends = (number + 1) * period
    if number == first then
      return number * period - offset, ends - after
    end
    return number * period - offset, math.min(ends - offset, change)
  end
  local number = math.floor((instant + after) / period)
  local start = number * period - after
  if number == first then
    local repeated = math.floor((change - 1 + offset) / period) >= first
    start = repeated and first * period - offset or change
  end
  return start, (number + 1) * period - after
end

for _ = 1, take() do
  local window = windows[take()]
  local period, offset, change, after = window.period, take(), take(), take()
  window.covered = function(at, by)
    local start = bounds(at, period, offset, change, after)
    local _, ends = bounds(by, period, offset, change, after)
    return start, ends - period
  end
end
