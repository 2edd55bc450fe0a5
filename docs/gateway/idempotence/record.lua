-- Records of responses, read as far as a gateway can show them exactly as Flask would.

local record = {}

local byte, find, sub = string.byte, string.find, string.sub

local NAMES = {
  "Content-Type", "Location", "ETag", "Cache-Control", "Content-Language", "Content-Encoding",
  "Content-Disposition", "Vary", "Last-Modified", "Expires", "Retry-After", "Link",
  "Access-Control-Allow-Origin",
}
local CONTENT_TYPES = {
  [0x80] = "application/json",
  [0x81] = "text/html; charset=utf-8",
  [0x82] = "text/plain; charset=utf-8",
  [0x83] = "application/problem+json",
}
local OTHER = 0x7F

-- Headers that nginx acts on, hides or rewrites on their way from Flask.
local LEFT_TO_NGINX = {
  ["date"] = true, ["server"] = true, ["x-pad"] = true, ["refresh"] = true, ["status"] = true,
  ["accept-ranges"] = true, ["content-encoding"] = true, ["content-length"] = true,
}

local BODILESS = { [204] = true, [205] = true, [206] = true }

local function number_at(content, position)
  local high, low = byte(content, position, position + 1)
  return high * 256 + low
end

local function text_at(content, position)
  local size = number_at(content, position)
  return sub(content, position + 2, position + 1 + size), position + 2 + size
end

local function is_sure(name, value)
  local lower = name:lower()
  if find(name, "[^%w-]") or find(value, "[^ -~]") or value == "" then
    return false
  elseif lower == "location" then
    return find(value, "^/") ~= nil -- nginx may rewrite the others
  end
  return not LEFT_TO_NGINX[lower] and not find(lower, "^x%-accel%-")
end

local function header_at(content, position)
  local code = byte(content, position)
  if CONTENT_TYPES[code] then
    return "Content-Type", CONTENT_TYPES[code], position + 1
  end
  local name, value = NAMES[code], nil
  position = position + 1
  if code == OTHER then
    name, position = text_at(content, position)
  end
  if not name then
    return nil
  end
  value, position = text_at(content, position)
  return name, value, position
end

-- Of the headers that may be repeated, nginx is sure to repeat this one.
local REPEATED = { ["link"] = true }

local function headers_at(content, position)
  local headers, seen = {}, {}
  while byte(content, position) ~= 0 do
    local name, value
    name, value, position = header_at(content, position)
    if not name or not is_sure(name, value) or (seen[name:lower()] and not REPEATED[name:lower()]) then
      return nil
    end
    seen[name:lower()] = true
    headers[#headers + 1] = { name, value }
  end
  -- Without a type of its own, a response would get one from nginx.
  return seen["content-type"] and headers, position + 1
end

--- Whether nginx sends a response with this status unchanged: it rewrites redirections, and a response
-- without a body has no length either.
function record.is_sendable(status)
  return status >= 200 and status <= 599 and not BODILESS[status] and (status < 300 or status >= 400)
end

local function read(content)
  if sub(content, 1, 1) ~= "B" then -- compressed, or without a body
    return nil
  end
  local status = number_at(content, 2)
  if not record.is_sendable(status) then
    return nil
  end
  local headers, position = headers_at(content, 4)
  return headers and { status = status, headers = headers, body = sub(content, position) }
end

--- Return the response that a record holds, or nil where only Flask can read it.
function record.response(bytes)
  if byte(bytes, 1) ~= 1 or #bytes < 8 then -- another version, or encrypted
    return nil
  end
  local content = sub(bytes, 6)
  local checksum = number_at(bytes, 2) * 65536 + number_at(bytes, 4)
  if checksum ~= ngx.crc32_long(content) then
    return nil
  end
  local ok, response = pcall(read, content)
  return ok and response or nil
end

return record
