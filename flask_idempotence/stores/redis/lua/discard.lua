-- Remove a key that still holds the value seen before, for the commands.
--
-- KEYS[1]  the key
-- ARGV[1]  how its value began: state and owner of a claim or record, state and subject of a token
--
-- Returns  1 removed, 0 the key is gone or has another value by now
--
-- Without the check: a claim is shown, its view completes, and the record of the payment is
-- removed in its place.

local value = redis.call("GET", KEYS[1])
if not value or string.sub(value, 1, string.len(ARGV[1])) ~= ARGV[1] then
  return 0
end

redis.call("DEL", KEYS[1])
return 1
