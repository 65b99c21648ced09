-- Take back, count what was sent elsewhere, book what is asked: one lane's ask in one step.
--
-- The law of the shared window. quotaclient/_core/account.py and window.py are the same law for
-- windows in a process, step for step: a change here is a change there.
--
-- KEYS  1      the hold under this key: the instant before which nobody sends
--       2      the lanes under this key: a sorted set, lane -> until when it counts as active
--       3...   one record per window: a header, then runs of (at, by, units) in order of `at`, all
--              little-endian doubles (whole numbers, exact to 2^53; a bucket has fractions)
--
-- ARGV  1      now, or '' for this server's TIME (tests bring their own)
--       2      the lane that asks
--       3      guard: a unit granted at `at` arrives within [at, at + guard]
--       4      max_wait, or -1 for "however long"
--       5      horizon: how far ahead one call may reserve more than one place
--       6      idle: how long a lane counts as active after it asked
--       7      greets: 1 if it is to be noted that this lane asks
--       ...    per window: limit (units at once), period
--       ...    if any window is not a sliding one: what fixed.lua and bucket.lua take
--       ...    what returns.lua takes: give-backs, and what was sent elsewhere
--       ...    groups to the end: count, after, a cost per window
--
-- Returns       { now, hold or 0, refused at or 0, by which window (0: a hold),
--                 per window: generation, total; per grant: count, at }
--
-- Units         instants and spans are whole microseconds; windows are numbered from 1.

local call = redis.call
local argument = 7
local function take()
  argument = argument + 1
  return tonumber(ARGV[argument])
end

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local lane = ARGV[2]
local guard, max_wait = tonumber(ARGV[3]), tonumber(ARGV[4])
local horizon, idle = tonumber(ARGV[5]), tonumber(ARGV[6])

local held = tonumber(call('GET', KEYS[1]) or 0)  -- until when, also if that has passed
local hold = held > now and held or 0

-- Part: record.lua

-- Write what has changed; the reply, to which grants are added.
local function finish(refused_at, refused_by)
  local reply = {now, hold, refused_at, refused_by}
  for i = 1, #windows do
    local window = windows[i]
    if window.changed then
      store(window)
    end
    reply[2 * i + 3], reply[2 * i + 4] = window.generation, math.ceil(window.total)
  end
  return reply
end

-- Part: fixed.lua, for asks with such windows
-- Part: bucket.lua, for asks with such windows

if ARGV[argument + 1] == '0' and ARGV[argument + 2] == '0' then
  argument = argument + 2
else
-- Part: returns.lua
end

if argument == #ARGV then
  return finish(0, 0)  -- nothing is asked for
end

-- Note that this lane asks, or will send at an instant. Who asks of windows with other periods may
-- count as active for longer: each lane's own end of that is noted.
local function greet(seen)
  call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  call('ZADD', KEYS[2], 'GT', seen + idle, lane)
  local life = math.ceil((seen - now + idle) / 1000)
  if call('PTTL', KEYS[2]) < life then
    call('PEXPIRE', KEYS[2], life)
  end
end

-- The short way: so many such asks as there are lanes would fit, now. Nothing need be divided. ---

local width = #windows + 2  -- of a group
local fits = hold == 0
local RECOVERY = 60000000  -- at most so long after a hold nobody leaves in a burst

-- Until when the end of a hold is felt in a window.
local function recovers_until(window)
  if held == 0 or window.covered or window.count then
    return 0
  end
  return held + math.min(window.period, RECOVERY)
end

for w = 1, #windows do
  local units = 0
  for i = argument + 1, #ARGV, width do
    fits = fits and ARGV[i + 1] == '0'
    units = units + ARGV[i] * ARGV[i + 1 + w]
  end
  windows[w].wanted = units
  fits = fits and windows[w].total + units <= windows[w].limit
    and (held == 0 or recovers_until(windows[w]) <= now)
end
if fits then
  local lanes = call('ZCARD', KEYS[2]) + 1
  for w = 1, #windows do
    fits = fits and windows[w].total + lanes * windows[w].wanted <= windows[w].limit
  end
end
if ARGV[7] == '1' then
  greet(now)
end

if fits then
  for w = 1, #windows do
    if windows[w].wanted > 0 then
      book(windows[w], now, now + guard, windows[w].wanted)
    end
  end
  local reply = finish(0, 0)
  for i = argument + 1, #ARGV, width do
    reply[#reply + 1] = tonumber(ARGV[i])
    reply[#reply + 1] = now
  end
  return reply
end

-- Part: fit.lua

-- The ask ---------------------------------------------------------------------------------------

local grants, refused_at, refused_by = {}, 0, 0
local start, pressing = math.max(now, hold), 0
local part_of_now, part_of_horizon = {}, {}
local active  -- how many lanes share what is free, once that is asked

-- What all lanes together may book within the horizon, but for what they have: it is theirs already.
local function free_within_horizon(window)
  local stays = 0  -- the units of those that have departed which count until then
  if window.stays then
    stays = window.stays(window)
  else
    local runs, since = runs_of(window), now + horizon - window.period
    for i = 1, #runs, 3 do
      if runs[i] <= now and runs[i + 1] > since then
        stays = stays + runs[i + 2]
      end
    end
  end
  return window.limit - math.ceil(stays)
end

-- What departs after a hold, in a tenth of the window: a tenth of the limit in a tenth of the period,
-- but room for a request of this cost. Whoever waited for the hold's end would leave at once.
local function recovery_of(window, cost)
  local recovery = {
    limit = math.max(math.ceil(window.limit / 10), cost), period = math.floor(window.period / 10),
    runs = {}, total = 0, ordered = window.ordered,
  }
  local runs, n = runs_of(window), 0
  for i = 1, #runs, 3 do
    if runs[i] >= held then
      recovery.runs[n + 1], recovery.runs[n + 2], recovery.runs[n + 3] = unpack(runs, i, i + 2)
      recovery.total, n = recovery.total + runs[i + 2], n + 3
    end
  end
  return recovery
end

-- Where one window allows a request of this cost, and its room there.
local function fit_now(window, cost)
  local at, peak = first_fit(window, start, cost)
  local ends = recovers_until(window)
  if at >= ends then
    return at, window.limit - peak
  end
  local recovery = recovery_of(window, cost)
  while at < ends do
    local later, height = first_fit(recovery, at, cost)
    if later == at then
      return at, math.min(window.limit - peak, recovery.limit - height)
    end
    at, peak = first_fit(window, math.min(later, ends), cost)
  end
  return at, window.limit - peak
end

-- Move `start` to where all windows agree; returns what each then has room for.
local function agree(drawn, costs)
  local rooms, agreed = {}, 0
  while agreed < #drawn do
    for _, i in ipairs(drawn) do
      local at, room = fit_now(windows[i], costs[i])
      if at > start then
        start, pressing, rooms, agreed = at, i, {}, 0
      end
      if not rooms[i] then
        agreed = agreed + 1
      end
      rooms[i] = room
    end
  end
  return rooms
end

-- Book up to `wanted` requests at the next instant that suits; 0 when the pass is over.
local function book_some(wanted, drawn, costs)
  local rooms = agree(drawn, costs)
  local wait = start - now
  if max_wait >= 0 and wait > max_wait then
    refused_at, refused_by = start, pressing
    return 0
  end
  local count = wanted
  if wait > horizon then
    count = 1
  else
    active = active or math.max(1, call('ZCOUNT', KEYS[2], now + 1, '+inf'))
    local part = wait > 0 and part_of_horizon or part_of_now
    for _, i in ipairs(drawn) do
      if not part[i] then
        part[i] = math.ceil((wait > 0 and free_within_horizon(windows[i]) or rooms[i]) / active)
      end
      count = math.min(count, math.floor(math.min(rooms[i], part[i]) / costs[i]))
    end
    if count < 1 and #grants > 0 then
      return 0
    end
    count = math.max(count, 1)
    for _, i in ipairs(drawn) do
      part[i] = part[i] - count * costs[i]
    end
  end
  for _, i in ipairs(drawn) do
    book(windows[i], start, start + guard, count * costs[i])
  end
  grants[#grants + 1] = count
  grants[#grants + 1] = start
  return count
end

local function book_all()
  while argument < #ARGV do
    local left, costs, drawn = take(), {}, {}
    start = math.max(start, now + take())
    for i = 1, #windows do
      costs[i] = take()
      if costs[i] > 0 then
        drawn[#drawn + 1] = i
      end
    end
    while left > 0 do
      if #grants > 0 and grants[#grants] > now + horizon then
        return  -- it has its place in line
      end
      local booked = book_some(left, drawn, costs)
      if booked == 0 then
        return
      end
      left = left - booked
    end
  end
end

book_all()

if #grants > 0 and grants[#grants] > now + idle / 2 then  -- else it was noted for as long
  greet(grants[#grants])
end
local reply = finish(refused_at, refused_by)
for i = 1, #grants do
  reply[#reply + 1] = grants[i]
end
return reply
