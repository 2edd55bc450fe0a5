-- Spend a one-time token: get, compare and delete in one step.
--
-- KEYS[1]  the key of the token
-- ARGV[1]  subject of the request, empty for none
--
-- Returns  1 taken, 0 absent, -1 another subject's (it stays unspent)
--
-- A value is  "T" subject.
-- A token without a subject is good for every sender.

local value = redis.call("GET", KEYS[1])
if not value then
  return 0
end

if string.sub(value, 1, 1) ~= "T" then
  return 0
end
local subject = string.sub(value, 2)
if subject ~= "" and subject ~= ARGV[1] then
  return -1
end

redis.call("DEL", KEYS[1])
return 1
