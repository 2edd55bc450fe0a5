-- Records of responses, read as far as a gateway can show them exactly as Flask would.

local record = {}

local find, sub = string.find, string.sub

-- Headers that nginx acts on, hides or rewrites on their way from Flask.
local LEFT_TO_NGINX = {
  ["date"] = true, ["server"] = true, ["x-pad"] = true, ["refresh"] = true, ["status"] = true,
  ["accept-ranges"] = true, ["content-encoding"] = true, ["content-length"] = true,
}

local BODILESS = { [204] = true, [205] = true, [206] = true }

local function is_sure(name, value)
  local lower = name:lower()
  if find(name, "[^%w-]") or find(value, "[^ -~]") or value == "" then
    return false
  elseif lower == "location" then
    return find(value, "^/") ~= nil -- nginx may rewrite the others
  end
  return not LEFT_TO_NGINX[lower] and not find(lower, "^x%-accel%-")
end

-- Of the headers that may be repeated, nginx is sure to repeat this one.
local REPEATED = { ["link"] = true }

local function headers_of(lines)
  local headers, seen = {}, {}
  for name, value in lines:gmatch("\n(.-): ([^\n]*)") do
    local lower = name:lower()
    if not is_sure(name, value) or (seen[lower] and not REPEATED[lower]) then
      return nil
    end
    seen[lower] = true
    headers[#headers + 1] = { name, value }
  end
  -- Without a type of its own, a response would get one from nginx.
  return seen["content-type"] and headers
end

--- Whether nginx sends a response with this status unchanged: it rewrites redirections, and a response
-- without a body has no length either.
function record.is_sendable(status)
  return status >= 200 and status <= 599 and not BODILESS[status] and (status < 300 or status >= 400)
end

--- Return the response that a record holds, or nil where only Flask can read it.
function record.response(bytes)
  -- Of another version, encrypted, compressed or without a body.
  local checksum, content = bytes:match("^2 (%x%x%x%x%x%x%x%x) (response .*)$")
  if not content or tonumber(checksum, 16) ~= ngx.crc32_long(content) then
    return nil
  end
  local ends = find(content, "\n\n", 1, true)
  local status, lines = sub(content, 1, (ends or 1) - 1):match("^response (%d%d%d)(\n.*)$")
  if not status or not record.is_sendable(tonumber(status)) then -- or one with a reason of its own
    return nil
  end
  local headers = headers_of(lines)
  return headers and { status = tonumber(status), headers = headers, body = sub(content, ends + 2) }
end

return record
