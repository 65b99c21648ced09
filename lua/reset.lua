-- Empty the records of a key's windows. Their life goes on (generation and expiry stay), so that
-- nobody takes this for a loss of data. Holds stay: they are the upstream's word.
--
-- KEYS  1...   one record per window, as in record.lua
-- ARGV         none
-- Returns       how many records there were
-- Units         none: a record's times are copied as they are

local found = 0
for _, key in ipairs(KEYS) do
  local packed = redis.call('GET', key)
  if packed then
    local generation, _, last_by, _, _, _, _, _, _, life = struct.unpack('<dddddddddd', packed)
    local header = struct.pack('<dddddddddd', generation, 0, last_by, 0, 0, 0, 0, 1, 0, life)
    redis.call('SET', key, header, 'KEEPTTL')
    found = found + 1
  end
end
return found
