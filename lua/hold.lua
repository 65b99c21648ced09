-- Nobody sends before the upstream said so. Holds merge by maximum and are never shortened.
--
-- KEYS  1      the hold under this key: the instant before which nobody sends
-- ARGV  1      now, or '' for this server's TIME (tests bring their own)
--       2      wait, counted from now
-- Returns       the instant until which the hold stands
-- Units         whole microseconds

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local til = now + tonumber(ARGV[2])
local standing = tonumber(redis.call('GET', KEYS[1]) or 0)
if standing >= til then
  return standing
end
local RECOVERY = 60000  -- ms: after its end nobody leaves in a burst, see reserve.lua
redis.call('SET', KEYS[1], string.format('%.0f', til),
  'PX', string.format('%.0f', math.ceil((til - now) / 1000) + 1 + RECOVERY))
return til
