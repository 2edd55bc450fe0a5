-- Reads the keyspace of Flask-Idempotence, and refuses or answers a request where that is certain.
--
-- It never writes. Every other request goes to Flask, which alone claims.

local canonical = require "idempotence.canonical"
local digest = require "idempotence.digest"
local record = require "idempotence.record"
local redis = require "nginx.redis"
local request = require "idempotence.request"

local gateway = {}

local TIMEOUT = 100 -- milliseconds for each step of reading the store
local REST = 1 -- seconds without another attempt after the store did not answer
local IDLE, POOL = 60000, 100 -- milliseconds, and connections of each worker

local KEY_IN_PROGRESS = "key-in-progress"
local IN_PROGRESS = '{"type": "%skey-in-progress", "title": "Request in progress", "status": %d, "detail": %s}'
local DETAIL = "The first request with this idempotency key is still running. Try again soon."
-- A client that wants one of these and no others wants no HTML page.
local NO_HTML = {
  ["*/*"] = true, ["application/json"] = true, ["application/problem+json"] = true,
  ["text/plain"] = true,
}

local LONGEST_ACCEPT = 1024

-- The default of `IDEMPOTENCE_IDENTITY_HEADERS`.
local IDENTITY_HEADERS = {
  "X-Api-Key", "Api-Key", "X-Auth-Token", "X-Access-Token", "X-Session-Token", "X-Forwarded-User",
  "X-Forwarded-Email", "X-Remote-User", "Remote-User", "X-Auth-Request-User",
  "Cf-Access-Authenticated-User-Email", "X-Amzn-Oidc-Identity", "X-Goog-Authenticated-User-ID",
  "X-MS-Client-Principal-ID", "X-User-ID", "Stripe-Account", "X-Tenant-ID", "X-Account-ID", "X-Organization-ID",
}

local METHODS = { POST = true, PUT = true, PATCH = true, DELETE = true }

local settings
local resting_until = 0

local function secret_in(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a"):gsub("\r?\n$", "")
  file:close()
  assert(text ~= "", path .. " is empty")
  return text
end

local function as_set(names)
  local set = {}
  for _, name in ipairs(names) do
    set[name] = true
  end
  return set
end

local function in_lower_case(names)
  local lower = {}
  for position, name in ipairs(names) do
    lower[position] = name:lower()
  end
  return lower
end

local function route_of(given)
  return {
    endpoint = assert(given.endpoint, "a route needs its endpoint"),
    rule = assert(given.rule, "a route needs its rule"),
    running = given.running,
    replay = given.replay,
    ignored = as_set(given.ignored or { "csrf_token", "idempotence_token" }),
    header = (given.header or "Idempotency-Key"):lower(),
    headers = given.headers or {},
  }
end

-- The answer to a repeat of a request that is still running; nil where only Flask can send it.
local function in_progress_of(given)
  local status = 409
  if type(given.duplicate_status) == "table" then -- a single number is not for this refusal
    status = given.duplicate_status[KEY_IN_PROGRESS] or status
  end
  if not record.is_sendable(status) then
    return nil
  end
  local text = (given.messages or {})[KEY_IN_PROGRESS] or DETAIL
  local detail = assert(canonical.text(text, given.ensure_ascii ~= false), "a message is not UTF-8")
  local base = given.problem_base or "urn:flask-idempotence:"
  return { status = status, body = IN_PROGRESS:format(base, status, detail) }
end

--- Read the configuration, once, while nginx starts (as root, who may read the secrets).
--
-- given.secret_file: holds `IDEMPOTENCE_HASH_KEY`, or the secret in its place.
-- given.prefix: `IDEMPOTENCE_PREFIX`.
-- given.problem_base: `IDEMPOTENCE_PROBLEM_BASE`.
-- given.messages: `IDEMPOTENCE_MESSAGES`; texts that are not lazy.
-- given.duplicate_status: `IDEMPOTENCE_DUPLICATE_STATUS`.
-- given.ensure_ascii: `app.json.ensure_ascii`; true unless it is given.
-- given.identity_host: `IDEMPOTENCE_IDENTITY_HOST`; true unless it is given.
-- given.identity_headers: `IDEMPOTENCE_IDENTITY_HEADERS`; its default unless it is given.
-- given.redis: a table with `address` (host and port, or "unix:/path"), `database`, and, where there
--   is a user, `user` and `password_file`.
-- given.routes: a table of routes by name. Each has
--   endpoint: its endpoint;
--   rule: its rule, without arguments;
--   running: whether a repeat of a running request is refused here;
--   replay: whether a repeat of a completed one is answered here;
--   ignored: names that do not count: those of `IDEMPOTENCE_IGNORED_ARGS` and of the route's `ignore`;
--   header: the header with the key;
--   headers: those that the application's `after_request` functions add to every response.
function gateway.configure(given)
  local password_file = given.redis.password_file
  settings = {
    key = digest.key_of(secret_in(given.secret_file)),
    prefix = given.prefix or "idempotence",
    in_progress = in_progress_of(given),
    by_host = given.identity_host ~= false,
    identity_headers = in_lower_case(given.identity_headers or IDENTITY_HEADERS),
    redis = given.redis,
    password = password_file and secret_in(password_file),
    routes = {},
  }
  for name, route in pairs(given.routes) do
    settings.routes[name] = route_of(route)
  end
end

local function look_at(connection, store_key)
  connection:init_pipeline(4)
  connection:multi() -- both answers are of one moment
  connection:get(store_key)
  connection:pttl(store_key)
  connection:exec()
  local replies, trouble = connection:commit_pipeline()
  local both = replies and replies[4]
  if type(both) ~= "table" or both[1] == false then
    return nil, trouble or "an error of the server"
  end
  connection:set_keepalive(IDLE, POOL)
  return both[1], both[2]
end

local function prepare(connection)
  if connection:get_reused_times() ~= 0 then
    return true
  end
  local user, database = settings.redis.user, settings.redis.database
  return (not user or connection:auth(user, settings.password))
    and (not database or connection:select(database))
end

-- The value of a key in the store, and its milliseconds to live; nil where the store does not answer.
local function stored(store_key)
  if ngx.now() < resting_until then
    return nil
  end
  local connection = redis:new()
  connection:set_timeout(TIMEOUT)
  local value, left
  local ok, trouble = connection:connect(unpack(settings.redis.address))
  if ok then
    ok, trouble = prepare(connection)
  end
  if ok then
    value, left = look_at(connection, store_key)
    ok, trouble = value ~= nil, left
  end
  if not ok then
    resting_until = ngx.now() + REST
    ngx.log(ngx.WARN, "idempotence: the store does not answer: ", trouble)
    connection:close()
    return nil
  end
  return value, left
end

local function wants_no_html(accept)
  if accept == nil then
    return true
  elseif type(accept) ~= "string" or #accept > LONGEST_ACCEPT then
    return false
  end
  for wanted in (accept .. ","):gmatch("([^,]*),") do
    if not NO_HTML[request.trimmed(wanted)] then
      return false
    end
  end
  return true
end

local function running(route, headers, value, left)
  local keep = tonumber(value:match("^%d+$", 34))
  local answer = settings.in_progress
  if not (answer and route.running and keep and left > keep and wants_no_html(headers["accept"])) then
    return nil
  end
  return {
    verdict = "running",
    status = answer.status,
    headers = {
      { "Content-Type", "application/problem+json" }, { "Vary", "Accept" },
      { "Idempotence-Refusal", KEY_IN_PROGRESS }, { "Retry-After", "1" },
    },
    body = answer.body,
  }
end

local function done(route, value, left)
  local response = route.replay and record.response(value:sub(34))
  if not response then
    return nil
  end
  response.verdict = "replayed"
  table.insert(response.headers, { "Idempotent-Replayed", "true" })
  table.insert(response.headers, { "Idempotent-Expires-In", string.format("%d", math.floor(left / 1000)) })
  return response
end

-- nginx applies conditions and ranges to its own responses, and not to Flask's.
local function is_conditional(headers)
  return headers["if-match"] or headers["if-none-match"] or headers["if-modified-since"]
    or headers["if-unmodified-since"] or headers["if-range"] or headers["range"]
end

local function names_of(route, headers, method)
  local host = settings.by_host and ngx.var.host or nil
  local identity = request.identity(headers, host, settings.identity_headers)
  local sent = request.key(headers[route.header])
  if not identity or not sent then
    return nil
  end
  return request.store_key(settings.key, settings.prefix, route, identity, method, sent)
end

local function answer_to(route)
  local headers, trouble = ngx.req.get_headers()
  if trouble or is_conditional(headers) or ngx.var.request_uri ~= route.rule then
    return nil
  end
  local method = ngx.req.get_method()
  local store_key = METHODS[method] and names_of(route, headers, method)
  if not store_key then
    return nil
  end
  ngx.req.read_body()
  if ngx.req.get_body_file() then -- too large to be kept in memory
    return nil
  end
  local value, left = stored(store_key)
  if type(value) ~= "string" then
    return nil
  end
  local body = ngx.req.get_body_data() or ""
  local fingerprint = request.fingerprint(settings.key, route, method, headers["content-type"], body)
  if value:sub(18, 33) ~= fingerprint then
    return nil -- another operation, or an uncertain one
  end
  local state = value:sub(1, 1)
  return state == "C" and running(route, headers, value, left)
    or state == "D" and done(route, value, left) or nil
end

local function add(name, value)
  local there = ngx.header[name]
  if there == nil or name == "Content-Type" then
    ngx.header[name] = value
  else
    local all = type(there) == "table" and there or { there }
    all[#all + 1] = value
    ngx.header[name] = all
  end
end

local function send(route, response)
  ngx.var.idempotence = response.verdict
  ngx.status = response.status
  for _, header in ipairs(response.headers) do
    add(header[1], header[2])
  end
  for name, value in pairs(route.headers) do
    ngx.header[name] = value
  end
  ngx.header["Content-Length"] = #response.body
  ngx.print(response.body)
  return ngx.exit(ngx.HTTP_OK)
end

--- Answer the current request, or pass it on to Flask.
--
-- name: the name of its route.
function gateway.read_along(name)
  local route = assert(settings.routes[name], "no route has this name")
  local ok, response = pcall(answer_to, route)
  if not ok then
    ngx.log(ngx.ERR, "idempotence: ", response)
  elseif response then
    return send(route, response)
  end
end

return gateway
