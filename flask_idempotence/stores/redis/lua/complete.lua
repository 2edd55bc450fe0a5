-- Replace a claim by a record, if it is the caller's, or if there is none.
--
-- KEYS[1]  the key of the claim
-- ARGV[1]  owner, 16 bytes
-- ARGV[2]  fingerprint, 16 bytes
-- ARGV[3]  record
-- ARGV[4]  ttl in milliseconds: for how long the record is remembered
--
-- Returns  1 stored (also when the same owner repeats it), 0 the key is another owner's
--
-- The lease may have ended: an owner that finished and was not replaced has the result, and
-- without its record the view would run a second time.

local value = redis.call("GET", KEYS[1])
if value and string.sub(value, 2, 17) ~= ARGV[1] then
  return 0
end

redis.call("SET", KEYS[1], "D" .. ARGV[1] .. ARGV[2] .. ARGV[3], "PX", ARGV[4])
return 1
