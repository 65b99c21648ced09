-- The record of a window: a header, then runs of (at, by, units) in order of `at`.
--
-- A part of reserve.lua, and the law of quotaclient/_core/window.py, step for step: a change here is
-- a change there. A few bytes are read and written where that will do; `runs` are all, once
-- something needs them: at, by, units, at, by, units... Numbers go to Redis as they are: it writes
-- them with 17 digits.
--
-- KEYS          those of reserve.lua
-- ARGV          per window: limit (units at once), period
-- Returns       nothing: it goes on with `windows`
-- Units         instants and spans are whole microseconds.

local MAX_RUNS = 128
local MAX_ROWS = 144  -- of a record: some more, so that it is not written whole at each booking
local LONGEST = 1e18  -- of a bucket's life: Redis takes no expiry of 18 digits

-- generation, total, last_by; which rows hold runs (first, past the last); the first run's `by`, the
-- last run's `at`; 1 if they end in the order in which they begin; how many rows there are; when the
-- record expires
local HEADER, HEAD = '<dddddddddd', 80  -- and its bytes
local RUN, ROW = '<ddd', 24

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
  local room = window.past < window.rows and window.past - window.first < MAX_RUNS
  if room and not window.runs and window.last_at < at then
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
