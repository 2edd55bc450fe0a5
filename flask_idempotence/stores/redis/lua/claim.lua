-- Take a key for its first caller, or return its state. One key, one round trip.
--
-- KEYS[1]  the key of the claim
-- ARGV[1]  owner, 16 bytes
-- ARGV[2]  fingerprint, 16 bytes
-- ARGV[3]  lease in milliseconds
-- ARGV[4]  hold in milliseconds: for how long after the last lease's end the key says "crashed"
--
-- Returns  0                       claimed (also to the owner who already holds it, and then never
--                                  for less than is left of its lease)
--          {1, matches, left, owner}   running: another's claim, its lease ends in `left` ms
--          {2, matches, record, left}  done, and forgotten in `left` ms
--          {3, matches}            crashed: its lease has ended, and it was not settled
--          `matches` is 1 where the fingerprint is the caller's, else 0
--
-- A value is  "C" owner fingerprint hold    for a claim, which lives for lease + hold
--         or  "D" owner fingerprint record  for a record.
-- Hence the rest of a claim's lease is its time to live less its hold, and no clock is read.

-- Without the check of the time left: a claim for one second is sent twice, the second copy is
-- granted and its lease renewed to 30 s; the first one arrives late and cuts it down to a second;
-- the key is free while the view still runs.

local value = redis.call("GET", KEYS[1])
local state = value and string.sub(value, 1, 1)
local lease = tonumber(ARGV[3])

if state == "C" and string.sub(value, 2, 17) == ARGV[1] then
  local left = redis.call("PTTL", KEYS[1]) - (tonumber(string.sub(value, 34)) or 0)
  lease = math.max(lease, left)
elseif value then
  local matches = string.sub(value, 18, 33) == ARGV[2] and 1 or 0
  if state == "D" then
    return {2, matches, string.sub(value, 34), redis.call("PTTL", KEYS[1])}
  end
  local hold = state == "C" and tonumber(string.sub(value, 34))
  if not hold then
    return {2, 1, "", 0}  -- damaged: done, with an unreadable record
  end
  local left = redis.call("PTTL", KEYS[1]) - hold
  if left > 0 then
    return {1, matches, left, string.sub(value, 2, 17)}
  end
  -- In its last millisecond a key without hold is still there, and yet its lease has ended.
  if hold > 0 then
    return {3, matches}
  end
end

-- As a text: Redis 7.2 would send the number 100000000 as "1e+8", and refuse it.
local life = string.format("%.0f", lease + ARGV[4])
redis.call("SET", KEYS[1], "C" .. ARGV[1] .. ARGV[2] .. ARGV[4], "PX", life)
return 0
