-- Restart the lease of a live claim, if it is the caller's.
--
-- KEYS[1]  the key of the claim
-- ARGV[1]  owner, 16 bytes
-- ARGV[2]  lease in milliseconds
--
-- Returns  1 renewed, 0 the claim has ended, has been settled, or is another's
--
-- Without the check of the owner: A freezes, its lease ends, B claims, A wakes and renews B's
-- lease; B dies, and the key stays claimed for as long as A lives.

local value = redis.call("GET", KEYS[1])
if not value or string.sub(value, 1, 17) ~= "C" .. ARGV[1] then
  return 0
end

local hold = tonumber(string.sub(value, 34))
if redis.call("PTTL", KEYS[1]) <= hold then
  return 0
end
-- As a text: Redis 7.2 would send the number 100000000 as "1e+8", and refuse it.
redis.call("PEXPIRE", KEYS[1], string.format("%.0f", ARGV[2] + hold))
return 1
