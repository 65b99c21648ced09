-- Take back, count what was sent elsewhere, book what is asked: one lane's ask in one step.
--
-- The law of the shared window. quotaclient/_core/account.py and window.py are the same law for
-- windows in a process, step for step: a change here is a change there.
--
-- KEYS  1      the hold under this key: the instant before which nobody sends
--       2      the lanes under this key: a sorted set, lane -> when it asked last or will send last
--       3...   one record per window: generation, total, last_by, then runs of (at, by, units) in
--              order of `at`, all little-endian doubles (whole numbers, exact to 2^53)
--
-- ARGV  1      now, or '' for this server's TIME (tests bring their own)
--       2      the lane that asks
--       3      guard: a unit granted at `at` arrives within [at, at + guard]
--       4      max_wait, or -1 for "however long"
--       5      horizon: how far ahead one call may reserve more than one place
--       6      idle: how long a lane counts as active after it asked
--       ...    per window: limit, period, units that come free in a horizon
--       ...    how many give-backs, then each: window, generation, at, by, units
--       ...    how many sends, then each: window, ago, until, units
--       ...    groups to the end: count, after, a cost per window
--
-- Returns       { now, hold or 0, {generation...}, {total...}, {count, at, count, at...},
--                 {} or {refused at, window or 0 for a hold} }
--
-- Units         instants and spans are whole microseconds; windows are numbered from 1.

local MAX_RUNS = 128
local HEADER, RUN = '<ddd', '<ddd'
local ROW = 24  -- bytes of a header, and of a run

local argument = 6
local function take()
  argument = argument + 1
  return tonumber(ARGV[argument])
end

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local lane = ARGV[2]
local guard, max_wait = tonumber(ARGV[3]), tonumber(ARGV[4])
local horizon, idle = tonumber(ARGV[5]), tonumber(ARGV[6])

local function whole(number)
  return string.format('%.0f', number)
end

-- The record ------------------------------------------------------------------------------------
-- `packed` holds the runs as stored, from byte `from` on, until something needs `runs`.

local function load(key)
  local window = {key = key, limit = take(), period = take(), ahead = take(), changed = false}
  local packed = redis.call('GET', key)
  if packed then
    window.generation, window.total, window.last_by = struct.unpack(HEADER, packed)
  end
  if not packed or window.last_by + window.period <= now then
    window.generation, window.total, window.last_by = 0, 0, 0
    packed = ''
  else
    packed = string.sub(packed, ROW + 1)
  end
  local from = 1
  while from < #packed do
    local _, by, units = struct.unpack(RUN, packed, from)
    if by + window.period > now then
      break
    end
    window.total = window.total - units
    from = from + ROW
  end
  window.packed = from > 1 and string.sub(packed, from) or packed
  return window
end

local function runs_of(window)
  if not window.runs then
    local runs, packed = {}, window.packed
    for from = 1, #packed, ROW do
      local at, by, units = struct.unpack(RUN, packed, from)
      runs[#runs + 1] = {at = at, by = by, units = units}
    end
    window.runs, window.packed = runs, nil
  end
  return window.runs
end

local function store(window)
  local packed = window.packed
  if not packed then
    local rows = {}
    for i, run in ipairs(window.runs) do
      rows[i] = struct.pack(RUN, run.at, run.by, run.units)
    end
    packed = table.concat(rows)
  end
  local header = struct.pack(HEADER, window.generation, window.total, window.last_by)
  local life = math.ceil((window.last_by + window.period - now) / 1000) + 1
  redis.call('SET', window.key, header .. packed, 'PX', whole(life))
end

local function join_nearest(runs)
  local nearest, least
  for i = 1, #runs - 1 do
    local span = math.max(runs[i].by, runs[i + 1].by) - runs[i].at
    if not least or span < least then
      nearest, least = i, span
    end
  end
  local left, right = runs[nearest], table.remove(runs, nearest + 1)
  left.by = math.max(left.by, right.by)
  left.units = left.units + right.units
end

local function insert(runs, at, by, units)
  local place = #runs
  while place > 0 and runs[place].at > at do
    place = place - 1
  end
  local same = place
  while same > 0 and runs[same].at == at do
    if runs[same].by == by then
      runs[same].units = runs[same].units + units
      return
    end
    same = same - 1
  end
  table.insert(runs, place + 1, {at = at, by = by, units = units})
  if #runs > MAX_RUNS then
    join_nearest(runs)
  end
end

local function book(window, at, by, units)
  if window.generation == 0 then
    window.generation = now
  end
  window.total = window.total + units
  window.last_by = math.max(window.last_by, by)
  window.changed = true
  -- The short way: later than every run there is, and one more fits. Nothing needs unpacking.
  local packed = window.packed
  if packed and #packed < MAX_RUNS * ROW
      and (packed == '' or struct.unpack('<d', packed, #packed - ROW + 1) < at) then
    window.packed = packed .. struct.pack(RUN, at, by, units)
  else
    insert(runs_of(window), at, by, units)
  end
end

local function give_back(window, generation, at, by, units)
  if generation ~= window.generation or by + window.period <= now then
    return
  end
  local exact, cover, covers = nil, nil, 0
  for i, run in ipairs(runs_of(window)) do
    if run.at == at and run.by == by then
      exact = i
    elseif run.at <= at and by <= run.by then
      cover, covers = i, covers + 1
    end
  end
  local holder = exact or (covers == 1 and cover)
  if not holder then
    return
  end
  local run = window.runs[holder]
  local taken = math.min(units, run.units)
  run.units = run.units - taken
  window.total = window.total - taken
  window.changed = true
  if run.units == 0 then
    table.remove(window.runs, holder)
  end
end

-- The booking rule ------------------------------------------------------------------------------

local function by_instant(left, right)
  return left.instant < right.instant
end

-- What occupies a window at `start`, and its later changes in order of time.
local function changes_after(window, start)
  local occupied, starts, ends, sorted = 0, {}, {}, true
  for _, run in ipairs(runs_of(window)) do
    local over = run.by + window.period
    if over > start then
      if run.at <= start then
        occupied = occupied + run.units
      else
        starts[#starts + 1] = {instant = run.at, difference = run.units}
      end
      sorted = sorted and (#ends == 0 or ends[#ends].instant <= over)
      ends[#ends + 1] = {instant = over, difference = -run.units}
    end
  end
  if not sorted then  -- only guards of different length put ends out of order
    table.sort(ends, by_instant)
  end
  return occupied, starts, ends
end

-- The first instant >= start from which occupancy never exceeds limit - cost throughout
-- guard + period, and the most that is occupied from it on.
local function first_fit(window, start, cost)
  local room = window.limit - cost
  if window.total <= room then
    return start, window.total
  end
  local span = guard + window.period
  local occupied, starts, ends = changes_after(window, start)
  local fit, peak = nil, 0
  if occupied <= room then
    fit, peak = start, occupied
  end
  local s, e = 1, 1
  while e <= #ends do  -- every start has its end behind it
    local instant = ends[e].instant
    if starts[s] and starts[s].instant < instant then
      instant = starts[s].instant
    end
    if fit and instant >= fit + span then
      break
    end
    while ends[e] and ends[e].instant == instant do
      occupied = occupied + ends[e].difference
      e = e + 1
    end
    while starts[s] and starts[s].instant == instant do
      occupied = occupied + starts[s].difference
      s = s + 1
    end
    if occupied > room then
      fit = nil
    elseif not fit then
      fit, peak = instant, occupied
    else
      peak = math.max(peak, occupied)
    end
  end
  return fit, peak
end

-- The ask ---------------------------------------------------------------------------------------

local windows = {}
for i = 3, #KEYS do
  windows[i - 2] = load(KEYS[i])
end

for _ = 1, take() do
  give_back(windows[take()], take(), take(), take(), take())
end

for _ = 1, take() do
  local window, ago, till, units = windows[take()], take(), take(), take()
  if now - till + window.period > now then
    book(window, now - ago, now - till, units)
  end
end

local hold = tonumber(redis.call('GET', KEYS[1]) or 0)
if hold <= now then
  hold = 0
end

local grants, refusal = {}, {}
local start, pressing = math.max(now, hold), 0
local asks = argument < #ARGV
local active = 1

if asks then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now - idle))
  redis.call('ZADD', KEYS[2], 'GT', whole(now), lane)
  active = redis.call('ZCARD', KEYS[2])
end

local part_of_now, part_of_horizon = {}, {}
for i, window in ipairs(windows) do
  part_of_horizon[i] = math.ceil(window.ahead / active)
end

-- Move `start` to where all windows agree; returns what each then has room for.
local function agree(drawn, costs)
  local rooms, agreed = {}, 0
  while agreed < #drawn do
    for _, i in ipairs(drawn) do
      local at, peak = first_fit(windows[i], start, costs[i])
      if at > start then
        start, pressing, rooms, agreed = at, i, {}, 0
      end
      if not rooms[i] then
        agreed = agreed + 1
      end
      rooms[i] = windows[i].limit - peak
    end
  end
  return rooms
end

-- Book up to `wanted` requests at the next instant that suits; 0 when the pass is over.
local function book_some(wanted, drawn, costs)
  local rooms = agree(drawn, costs)
  local wait = start - now
  if max_wait >= 0 and wait > max_wait then
    refusal = {start, pressing}
    return 0
  end
  local count = wanted
  if wait > horizon then
    count = 1
  else
    local part = wait > 0 and part_of_horizon or part_of_now
    for _, i in ipairs(drawn) do
      part[i] = part[i] or math.ceil(rooms[i] / active)
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

if asks then
  local seen = grants[#grants] or now
  if seen > now then
    redis.call('ZADD', KEYS[2], 'GT', whole(seen), lane)
  end
  local life = math.ceil((seen - now + idle) / 1000)
  if redis.call('PTTL', KEYS[2]) < life then
    redis.call('PEXPIRE', KEYS[2], whole(life))
  end
end

local generations, totals = {}, {}
for i, window in ipairs(windows) do
  if window.changed then
    store(window)
  end
  generations[i], totals[i] = window.generation, window.total
end

return {now, hold, generations, totals, grants, refusal}
