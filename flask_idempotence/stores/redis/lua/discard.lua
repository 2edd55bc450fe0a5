-- Remove a key that still holds the value seen before, for the commands.
--
-- KEYS[1]  the key
-- ARGV[1]  how its value began: state and owner of a claim or record, state and subject of a token
--
-- Returns  1 it was removed, 0 the key holds nothing or something else by now
--
-- Without the check: a claim is seen, its view completes, and the record of a payment is removed in
-- its place.

local value = redis.call("GET", KEYS[1])
if not value or string.sub(value, 1, string.len(ARGV[1])) ~= ARGV[1] then
  return 0
end

redis.call("DEL", KEYS[1])
return 1
