-- What a request is to Flask: who asks, with which key, and what. Nil wherever that is not certain.

local canonical = require "idempotence.canonical"
local digest = require "idempotence.digest"

local request = {}

local SCHEMES = { basic = true, bearer = true }
local LONGEST_KEY = 255

local function is_printable(text)
  return text ~= "" and not text:find("[^ -~]")
end

local function has_any(headers, names)
  for _, name in ipairs(names) do
    if headers[name] then
      return true
    end
  end
  return false
end

--- Return the identity that the credentials of a request stand for.
--
-- host: the host that Flask sees, or nil where it does not count.
-- others: names of headers that Flask counts, too, in lower case.
function request.identity(headers, host, others)
  local credentials = headers["authorization"]
  if headers["cookie"] or type(credentials) ~= "string" or not is_printable(credentials) then
    return nil -- there may be a session, which comes first
  end
  if has_any(headers, others) or host == "" then
    return nil
  end
  local scheme, secret = credentials:match("^([^ ]+) (.*)$")
  secret = secret and secret:match("^ *(.-) *$")
  if not scheme or not SCHEMES[scheme:lower()] or secret == "" then
    return nil
  end
  return (host and host .. " " or "") .. "authorization:" .. scheme:lower() .. " " .. secret
end

--- Return the key that the value of a header stands for.
function request.key(value)
  if type(value) ~= "string" or not is_printable(value) then
    return nil -- none, or several
  end
  value = value:match("^ *(.-) *$")
  if value:sub(1, 1) == '"' then
    value = value:match('^"(.*)"$')
    if not value or value:gsub('\\[\\"]', ""):find('[\\"]') then
      return nil
    end
    value = value:gsub('\\([\\"])', "%1")
  elseif value:find(",", 1, true) then
    return nil
  end
  return #value > 0 and #value <= LONGEST_KEY and value or nil
end

local function body_text(content_type, body, ignored)
  if content_type ~= nil then
    local kind = type(content_type) == "string" and content_type:match("^ *([^;]-) *$")
      or type(content_type) == "string" and content_type:match("^ *([^;]-) *;[ -~]*$")
    if not kind or kind:lower() ~= "application/json" then
      return nil
    end
  elseif body ~= "" then
    return nil
  end
  if body == "" then
    return ""
  end
  local value = canonical.json(body, ignored)
  return value and ',"json",' .. value
end

--- Return the fingerprint of a request to a route without arguments and without a query.
--
-- route: with `endpoint`, `rule`, and the set `ignored`.
function request.fingerprint(key, route, method, content_type, body)
  local asked = body_text(content_type, body, route.ignored)
  if not asked then
    return nil
  end
  local texts = canonical.texts("key", route.rule, method, route.endpoint)
  return digest.hash(key, texts:sub(1, -2) .. ",{},{}" .. asked .. "]")
end

--- Return the name of the store key.
function request.store_key(key, prefix, route, identity, method, sent)
  local message = canonical.texts("key", identity, method, route.endpoint, sent)
  return prefix .. ":2:key:" .. route.endpoint .. ":" .. digest.hex(digest.hash(key, message))
end

return request
