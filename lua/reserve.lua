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
--       ...    how many give-backs, then each: window, generation, at, by, units
--       ...    how many sends, then each: window, ago, until, units
--       ...    groups to the end: count, after, a cost per window
--
-- Returns       { now, hold or 0, refused at or 0, by which window (0: a hold),
--                 per window: generation, total; per grant: count, at }
--
-- Units         instants and spans are whole microseconds; windows are numbered from 1.

local MAX_RUNS = 128
local MAX_ROWS = 144  -- of a record: some more, so that it is not written whole at each booking
local LONGEST = 1e18  -- of a bucket's life: Redis takes no expiry of 18 digits

-- generation, total, last_by; which rows hold runs (first, past the last); the first run's `by`, the
-- last run's `at`; 1 if they end in the order in which they begin; how many rows there are; when the
-- record expires
local HEADER, HEAD = '<dddddddddd', 80  -- and its bytes
local RUN, ROW = '<ddd', 24

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

local hold = tonumber(call('GET', KEYS[1]) or 0)
if hold <= now then
  hold = 0
end

-- The record ------------------------------------------------------------------------------------
-- A few bytes are read and written where that will do; `runs` are all, once something needs them:
-- at, by, units, at, by, units... Numbers go to Redis as they are: it writes them with 17 digits.

-- Pass by the rows of runs that have ended; nearly always there are few.
local function forget(window)
  while window.first < window.past do
    local from = HEAD + window.first * ROW
    local upto = HEAD + math.min(window.first + 3, window.past) * ROW
    local packed = call('GETRANGE', window.key, from, upto - 1)
    for place = 1, #packed, ROW do
      local _, by, units = struct.unpack(RUN, packed, place)
      if by + window.period > now then
        window.next_by = by
        return
      end
      window.total, window.first = window.total - units, window.first + 1
    end
  end
end

local windows = {}
for i = 3, #KEYS do
  local key, period = KEYS[i], tonumber(ARGV[argument + 2])
  local head, window = call('GETRANGE', key, 0, HEAD - 1), nil
  if head ~= '' then
    local generation, total, last_by, first, past, next_by, last_at, ordered, rows, life =
      struct.unpack(HEADER, head)
    if last_by + period > now then
      window = {
        key = key, limit = take(), period = take(),
        generation = generation, total = total, last_by = last_by, first = first, past = past,
        next_by = next_by, last_at = last_at, ordered = ordered, rows = rows, life = life,
        stored = past,
      }
      if next_by + period <= now then
        forget(window)
      end
    end
  end
  windows[i - 2] = window or {
    key = key, limit = take(), period = take(),
    generation = 0, total = 0, last_by = 0, first = 0, past = 0,
    next_by = 0, last_at = 0, ordered = 1, rows = 0, life = 0, stored = 0,
  }
end

local function runs_of(window)
  if not window.runs then
    local packed = window.appended or ''
    if window.first < window.stored then
      local from, upto = HEAD + window.first * ROW, HEAD + window.stored * ROW
      packed = call('GETRANGE', window.key, from, upto - 1) .. packed
    end
    window.runs = {struct.unpack('<' .. string.rep('d', #packed / 8), packed)}
    window.runs[#window.runs] = nil  -- unpack also tells where it stopped
    window.dirty = 3 * (window.stored - window.first) + 1
    window.appended = nil
  end
  return window.runs
end

local function packed_from(runs, i)
  return struct.pack('<' .. string.rep('d', #runs - i + 1), unpack(runs, i))
end

-- Make the record one of the runs there are, with free rows for those that come.
local function renew(window)
  local runs = window.runs
  window.first, window.past, window.rows, window.ordered = 0, #runs / 3, 4, 1
  for i = 5, #runs, 3 do
    if runs[i] < runs[i - 3] then  -- guards differ
      window.ordered = 0
      break
    end
  end
  while window.rows <= window.past and window.rows < MAX_ROWS do
    window.rows = window.rows * 3
  end
  window.rows = math.min(window.rows, MAX_ROWS)
end

local function store(window)
  local reach = window.count
    and math.min(math.ceil(window.total * window.period / window.count), LONGEST)
  local ends, runs = window.last_by + (reach or window.period), window.runs
  local lives, whole = ends > window.life, false
  if runs then
    window.past = window.first + #runs / 3
    window.next_by, window.last_at = runs[2] or 0, runs[#runs - 2] or 0
    whole = window.dirty == 1 or window.past > window.rows
    if whole then
      renew(window)
    end
  end
  if lives or whole then  -- it may live a little longer, so that this is not said each time
    window.life = ends + math.ceil(window.period / 32)
  end
  local expiry = math.ceil((window.life - now) / 1000) + 1
  local header = struct.pack(HEADER, window.generation, window.total, window.last_by,
    window.first, window.past, window.next_by, window.last_at, window.ordered, window.rows, window.life)
  if whole then
    local free = string.rep('\0', (window.rows - window.past) * ROW)
    call('SET', window.key, header .. packed_from(runs, 1) .. free, 'PX', expiry)
    return
  end
  call('SETRANGE', window.key, 0, header)
  if runs and window.dirty < #runs then
    local row = window.first + (window.dirty - 1) / 3
    call('SETRANGE', window.key, HEAD + row * ROW, packed_from(runs, window.dirty))
  elseif window.appended then
    call('SETRANGE', window.key, HEAD + window.stored * ROW, window.appended)
  end
  if lives then
    call('PEXPIRE', window.key, expiry)
  end
end

-- How far a run and the next are apart.
local function apart(runs, i)
  return runs[i + 3] - runs[i] + math.abs(runs[i + 4] - runs[i + 1])
end

-- Make one run each of neighbours that begin and end nearly together, by which a third at least are
-- meant: fewer than two in three can be farther apart than one and a half times the mean.
local function thin_out(window)
  local runs, thinned, sum, last = window.runs, {}, 0, #window.runs - 2
  for i = 1, last - 3, 3 do
    sum = sum + apart(runs, i)
  end
  local farthest, i, n = sum / MAX_RUNS * 1.5, 1, 0
  while i <= last do
    local at, by, units = runs[i], runs[i + 1], runs[i + 2]
    if i < last and apart(runs, i) <= farthest then
      by, units = math.max(by, runs[i + 4]), math.ceil(units + runs[i + 5])
      i = i + 3
    end
    i = i + 3
    thinned[n + 1], thinned[n + 2], thinned[n + 3] = at, by, units
    n = n + 3
  end
  window.runs, window.dirty, window.level = thinned, 1, nil
end

local function insert(window, at, by, units)
  local runs = runs_of(window)
  local place = #runs + 1  -- where `at` goes
  while place > 1 and runs[place - 3] > at do
    place = place - 3
  end
  local same = place - 3
  while same > 0 and runs[same] == at do
    if runs[same + 1] == by then
      runs[same + 2] = runs[same + 2] + units
      window.dirty = math.min(window.dirty, same)
      return
    end
    same = same - 3
  end
  for i = #runs, place, -1 do
    runs[i + 3] = runs[i]
  end
  runs[place], runs[place + 1], runs[place + 2] = at, by, units
  window.dirty = math.min(window.dirty, place)
  if #runs > 3 * MAX_RUNS then
    thin_out(window)
  end
end

local function book(window, at, by, units)
  if window.covered then
    at, by = window.covered(at, by)
  end
  if window.generation == 0 then
    window.generation = now
  end
  window.total = window.total + units
  if by < window.last_by then
    window.ordered = 0
  end
  window.last_by = math.max(window.last_by, by)
  window.changed = true
  -- The short way: later than every run there is, and one more fits. The others stay unread.
  if not window.runs and window.past < window.rows and window.last_at < at then
    window.appended = (window.appended or '') .. struct.pack(RUN, at, by, units)
    if window.first == window.past then
      window.next_by = by
    end
    window.past, window.last_at = window.past + 1, at
  else
    insert(window, at, by, units)
  end
  if window.booked then
    window.booked(window, at, by, units)
  end
end

-- Until when units occupy the window that may arrive as late as that.
local function ends_of(window, by)
  if window.covered then
    local _, last = window.covered(by, by)
    by = last
  end
  return by + window.period
end

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

-- Here parts are put in for asks with windows of other kinds: fixed.lua, bucket.lua.

for _ = 1, take() do
  give_back(windows[take()], take(), take(), take(), take())
end

for _ = 1, take() do
  local window, ago, till, units = windows[take()], take(), take(), take()
  book_late(window, now - ago, now - till, units)
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
local lanes = call('ZCARD', KEYS[2]) + 1
if ARGV[7] == '1' then
  greet(now)
end
for w = 1, #windows do
  local units = 0
  for i = argument + 1, #ARGV, width do
    fits = fits and ARGV[i + 1] == '0'
    units = units + ARGV[i] * ARGV[i + 1 + w]
  end
  windows[w].wanted = units
  fits = fits and windows[w].total + lanes * units <= windows[w].limit
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

-- The booking rule ------------------------------------------------------------------------------

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

-- The ask ---------------------------------------------------------------------------------------

local active = math.max(1, call('ZCOUNT', KEYS[2], now + 1, '+inf'))

local grants, refused_at, refused_by = {}, 0, 0
local start, pressing = math.max(now, hold), 0
local part_of_now, part_of_horizon = {}, {}

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
    refused_at, refused_by = start, pressing
    return 0
  end
  local count = wanted
  if wait > horizon then
    count = 1
  else
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
