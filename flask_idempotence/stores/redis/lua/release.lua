-- Release a claim, if it is the caller's. A record is never removed.
--
-- KEYS[1]  the key of the claim
-- ARGV[1]  owner, 16 bytes
--
-- Returns  1 the key has no claim of this owner, 0 the key is another's claim or holds a record

local value = redis.call("GET", KEYS[1])
if not value then
  return 1
end
if string.sub(value, 1, 17) ~= "C" .. ARGV[1] then
  return 0
end

redis.call("DEL", KEYS[1])
return 1
