-- Identity, key and fingerprint of a request, as Flask computes them. Nil wherever that is not certain.

local canonical = require "idempotence.canonical"
local digest = require "idempotence.digest"

local request = {}

local SCHEMES = { basic = true, bearer = true }
local LONGEST_KEY = 255
local LONGEST_KEY_SENT = 2 * LONGEST_KEY + 2 -- between quotes, each character escaped
local LONGEST_CREDENTIALS = 8192
local LONGEST_CONTENT_TYPE = 256

local function is_printable(text)
  return text ~= "" and not text:find("[^ -~]")
end

-- Whether a header was sent once, printable and no longer than this: checked before it is read.
local function is_text(value, longest)
  return type(value) == "string" and #value <= longest and is_printable(value)
end

--- Return a text without the spaces around it, in one pass: "^ *(.-) *$" takes the square of its length.
function request.trimmed(text)
  local first, last = text:find("[^ ]"), #text
  if not first then
    return ""
  end
  while text:byte(last) == 32 do
    last = last - 1
  end
  return text:sub(first, last)
end

local trimmed = request.trimmed

local function has_any(headers, names)
  for _, name in ipairs(names) do
    if headers[name] then
      return true
    end
  end
  return false
end

--- Return the identity of the credentials of a request.
--
-- host: the host that Flask sees, or nil where it does not count.
-- others: names of headers that Flask counts, too, in lower case.
function request.identity(headers, host, others)
  local credentials = headers["authorization"]
  if headers["cookie"] or not is_text(credentials, LONGEST_CREDENTIALS) then
    return nil -- there may be a session, which comes first
  end
  if has_any(headers, others) or host == "" then
    return nil
  end
  local scheme, secret = credentials:match("^([^ ]+) (.*)$")
  secret = secret and trimmed(secret)
  if not scheme or not SCHEMES[scheme:lower()] or secret == "" then
    return nil
  end
  return (host and host .. " " or "") .. "authorization:" .. scheme:lower() .. " " .. secret
end

--- Return the key in the value of a header.
function request.key(value)
  if not is_text(value, LONGEST_KEY_SENT) then
    return nil -- none, several, or too long
  end
  value = trimmed(value)
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

local function is_json(content_type)
  return is_text(content_type, LONGEST_CONTENT_TYPE)
    and trimmed(content_type:match("^[^;]*")):lower() == "application/json"
end

local function body_text(content_type, body, ignored)
  if content_type ~= nil then
    if not is_json(content_type) then
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
