-- Canonical JSON, byte for byte as Python writes it: ASCII, names sorted, no spaces.
--
-- For input that Python might read or write differently, `canonical.json` returns nil, and the request
-- goes to Flask: text that is not strict JSON in UTF-8, lone surrogates, exponents, fractions of more
-- than 15 digits, a name that occurs twice in an object, and nesting deeper than 50.

local canonical = {}

local byte, find, format, match, sub = string.byte, string.find, string.format, string.match, string.sub

local DEEPEST = 50
local LONGEST_NUMBER = 300 -- Python refuses to read integers of some thousands
local SURE_DIGITS = 15 -- so many decimal digits come back from a double as they were

local ESCAPES = { ['"'] = 34, ["\\"] = 92, ["/"] = 47, b = 8, f = 12, n = 10, r = 13, t = 9 }
local ESCAPED = {
  [34] = '\\"', [92] = "\\\\", [8] = "\\b", [12] = "\\f", [10] = "\\n", [13] = "\\r", [9] = "\\t",
}

local UNSURE = {}

local function give_up()
  error(UNSURE, 0)
end

local function skip_spaces(text, position)
  return match(text, "^[ \t\r\n]*()", position)
end

local function is_surrogate(code)
  return code >= 0xD800 and code <= 0xDFFF
end

local function escape(code)
  if ESCAPED[code] then
    return ESCAPED[code]
  elseif code >= 0x20 and code < 0x7F then
    return string.char(code)
  elseif code < 0x10000 then
    return format("\\u%04x", code)
  end
  code = code - 0x10000
  return format("\\u%04x\\u%04x", 0xD800 + math.floor(code / 0x400), 0xDC00 + code % 0x400)
end

-- Read one character that is written as itself: its code point, and where the next one begins.
local function plain_character(text, position)
  local first = byte(text, position)
  if first < 0x20 then
    give_up()
  elseif first < 0x80 then
    return first, position + 1
  end
  local more, smallest
  if first >= 0xC2 and first <= 0xDF then
    more, smallest = 1, 0x80
  elseif first >= 0xE0 and first <= 0xEF then
    more, smallest = 2, 0x800
  elseif first >= 0xF0 and first <= 0xF4 then
    more, smallest = 3, 0x10000
  else
    give_up()
  end
  local code = first % 2 ^ (6 - more)
  for index = position + 1, position + more do
    local next_byte = byte(text, index)
    if not next_byte or next_byte < 0x80 or next_byte > 0xBF then
      give_up()
    end
    code = code * 64 + next_byte % 64
  end
  if code < smallest or code > 0x10FFFF or is_surrogate(code) then
    give_up()
  end
  return code, position + more + 1
end

local function four_digits(text, position)
  local digits = match(text, "^\\u(%x%x%x%x)", position)
  return digits and tonumber(digits, 16)
end

-- Read one character that is written with a backslash.
local function escaped_character(text, position)
  local short = ESCAPES[sub(text, position + 1, position + 1)]
  if short then
    return short, position + 2
  end
  local code = four_digits(text, position)
  if not code then
    give_up()
  elseif not is_surrogate(code) then
    return code, position + 6
  end
  local low = four_digits(text, position + 6)
  if code >= 0xDC00 or not low or low < 0xDC00 or low > 0xDFFF then
    give_up()
  end
  return 0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00, position + 12
end

-- Read a string whose opening quote is at the position.
--
-- Returns its canonical text, what it sorts by, and where it ends. Code points sort as their numbers
-- do, which need not be as their escapes do.
local function string_at(text, position)
  local after = match(text, '^"[ !#-%[%]-~]*"()', position)
  if after then -- nothing in it to escape
    local whole = sub(text, position, after - 1)
    return whole, sub(whole, 2, -2), after
  end
  if byte(text, position) ~= 34 then
    give_up()
  end
  local written, codes = {}, {}
  position = position + 1
  while true do
    local first, code = byte(text, position), nil
    if first == 34 then
      break
    elseif not first then
      give_up()
    end
    local read = first == 92 and escaped_character or plain_character
    code, position = read(text, position)
    written[#written + 1] = escape(code)
    -- One fixed width, so that bytes sort as code points do.
    codes[#codes + 1] = code < 0x80 and string.char(code) or format("\255%06x", code)
  end
  return '"' .. table.concat(written) .. '"', table.concat(codes), position + 1
end

local function fraction_of(whole, fraction)
  local digits = match(whole .. fraction, "^-?0*(%d*)$")
  -- From 0.0001 on, Python writes no exponents.
  if #digits > SURE_DIGITS or (digits ~= "" and find(whole .. "." .. fraction, "^%-?0%.0000")) then
    give_up()
  end
  local short = match(fraction, "^(%d-)0*$")
  return short == "" and "0" or short
end

local function number_at(text, position)
  local whole, after = match(text, "^(%-?%d+)()", position)
  if not whole or #whole > LONGEST_NUMBER or find(whole, "^%-?0%d") then
    give_up()
  end
  local fraction, after_fraction = match(text, "^%.(%d+)()", after)
  after = after_fraction or after
  if find(text, "^[%w.+-]", after) then
    give_up()
  elseif fraction then
    return whole .. "." .. fraction_of(whole, fraction), after
  end
  return whole == "-0" and "0" or whole, after
end

local value_at

local function array_at(text, position, depth)
  local items = {}
  position = skip_spaces(text, position + 1)
  if byte(text, position) == 93 then
    return "[]", position + 1
  end
  while true do
    items[#items + 1], position = value_at(text, position, depth)
    position = skip_spaces(text, position)
    local after = byte(text, position)
    if after == 93 then
      return "[" .. table.concat(items, ",") .. "]", position + 1
    elseif after ~= 44 then
      give_up()
    end
    position = skip_spaces(text, position + 1)
  end
end

local function members_at(text, position, depth)
  local members, order = {}, {}
  position = skip_spaces(text, position + 1)
  if byte(text, position) == 125 then
    return members, order, position + 1
  end
  while true do
    local name, sorted_by, value
    name, sorted_by, position = string_at(text, position)
    position = skip_spaces(text, position)
    if byte(text, position) ~= 58 then
      give_up()
    end
    value, position = value_at(text, skip_spaces(text, position + 1), depth)
    if members[sorted_by] then
      give_up() -- of two values of one name, some parsers take the first and some the last
    end
    order[#order + 1] = sorted_by
    members[sorted_by] = name .. ":" .. value
    position = skip_spaces(text, position)
    local after = byte(text, position)
    if after == 125 then
      return members, order, position + 1
    elseif after ~= 44 then
      give_up()
    end
    position = skip_spaces(text, position + 1)
  end
end

local function merge(from, to, first, middle, last)
  local left, right = first, middle
  for index = first, last - 1 do
    if left < middle and (right >= last or from[left] < from[right]) then
      to[index], left = from[left], left + 1
    else
      to[index], right = from[right], right + 1
    end
  end
end

-- Merge sort: for the quicksort of table.sort, names can be chosen that take it the square of their number.
local function sorted(names)
  local from, to, count, width = names, {}, #names, 1
  while width < count do
    for first = 1, count, 2 * width do
      merge(from, to, first, math.min(first + width, count + 1), math.min(first + 2 * width, count + 1))
    end
    from, to, width = to, from, 2 * width
  end
  return from
end

local function object_at(text, position, depth, ignored)
  local members, order, after = members_at(text, position, depth)
  local written = {}
  for _, name in ipairs(sorted(order)) do
    if not (ignored and ignored[name]) then
      written[#written + 1] = members[name]
    end
  end
  return "{" .. table.concat(written, ",") .. "}", after
end

local LITERALS = { [116] = "true", [102] = "false", [110] = "null" }

function value_at(text, position, depth, ignored)
  local first = byte(text, position)
  if depth > DEEPEST then
    give_up()
  elseif first == 123 then
    return object_at(text, position, depth + 1, ignored)
  elseif first == 91 then
    return array_at(text, position, depth + 1)
  elseif first == 34 then
    local written, _, after = string_at(text, position)
    return written, after
  end
  local literal = LITERALS[first]
  if not literal then
    return number_at(text, position)
  elseif sub(text, position, position + #literal - 1) ~= literal then
    give_up()
  end
  return literal, position + #literal
end

--- Return the canonical form of a JSON text, or nil where it is not certain.
--
-- ignored: a set of ASCII names which do not count in the outermost object.
function canonical.json(text, ignored)
  local ok, written, position = pcall(value_at, text, skip_spaces(text, 1), 0, ignored)
  if not ok then
    if written ~= UNSURE then
      error(written, 0)
    end
    return nil
  end
  return skip_spaces(text, position) == #text + 1 and written or nil
end

--- Return the canonical form of an array of texts, each of printable ASCII.
function canonical.texts(...)
  local written = {}
  for index, text in ipairs { ... } do
    written[index] = '"' .. text:gsub('[\\"]', "\\%0") .. '"'
  end
  return "[" .. table.concat(written, ",") .. "]"
end

local function written(text, ascii)
  local parts, position = {}, 1
  while position <= #text do
    local code, after = byte(text, position), position + 1
    if code >= 0x80 then
      code, after = plain_character(text, position)
    end
    local is_plain = code >= 0x7F and not ascii
    parts[#parts + 1] = is_plain and sub(text, position, after - 1) or escape(code)
    position = after
  end
  return '"' .. table.concat(parts) .. '"'
end

--- Return a text as Python's JSON writes it, or nil where it is not UTF-8.
--
-- ascii: Python's `ensure_ascii`.
function canonical.text(text, ascii)
  local ok, json = pcall(written, text, ascii)
  return ok and json or nil
end

return canonical
