-- Spend a one-time token: get, compare and delete in one step.
--
-- KEYS[1]  the key of the token
-- ARGV[1]  subject of the request, empty for none
--
-- Returns  1 taken, 2 taken after it had been put back, 0 absent, -1 another subject's (it stays unspent)
--
-- A value is  "T" subject  for a fresh token,  "R" subject  for one that was put back.
-- A token without a subject is good for every sender.

local value = redis.call("GET", KEYS[1])
if not value then
  return 0
end

local state = string.sub(value, 1, 1)
if state ~= "T" and state ~= "R" then
  return 0
end
local subject = string.sub(value, 2)
if subject ~= "" and subject ~= ARGV[1] then
  return -1
end

redis.call("DEL", KEYS[1])
return state == "T" and 1 or 2
