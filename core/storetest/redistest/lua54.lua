-- Runs scripts as a server does whose Lua is 5.4. It reads a script, how many keys there are, the keys and
-- the arguments, as a RESP array. For each redis.call it writes "?" and the command, and reads the reply. At the
-- end it writes "=" and the script's reply. A number that leaves the script is an integer, or the script fails.

local input, output, mathtype = io.read, io.stdout, math.type

local function read()
	local line = input('L')
	if not line then os.exit(0) end
	local mark, rest = line:sub(1, 1), line:sub(2, -3)
	if mark == '+' then
		return {ok = rest}
	elseif mark == '-' then
		return {err = rest}
	elseif mark == ':' then
		return math.tointeger(rest)
	elseif rest == '-1' then
		return false
	elseif mark == '$' then
		return (input(rest + 2):sub(1, -3))
	end
	local values = {}
	for i = 1, rest do
		values[i] = read()
	end
	return values
end

local function bulk(text) return '$' .. #text .. '\r\n' .. text .. '\r\n' end

local function integer(n)
	if mathtype(n) ~= 'integer' then error('the number ' .. n .. ' is no integer', 0) end
	return string.format('%d', n)
end

local function write(value)
	local kind = type(value)
	if kind == 'number' then
		return ':' .. integer(value) .. '\r\n'
	elseif kind == 'string' then
		return bulk(value)
	elseif kind == 'boolean' then
		return value and ':1\r\n' or '$-1\r\n'
	elseif value.err or value.ok then
		return value.err and '-' .. value.err:gsub('[\r\n]', ' ') .. '\r\n' or '+' .. value.ok .. '\r\n'
	end
	local parts = {'*' .. #value .. '\r\n'}
	for _, v in ipairs(value) do
		parts[#parts + 1] = write(v)
	end
	return table.concat(parts)
end

local function call(...)
	local parts = {'?*' .. select('#', ...) .. '\r\n'}
	for _, v in ipairs({...}) do
		parts[#parts + 1] = bulk(type(v) == 'number' and integer(v) or v)
	end
	output:write(table.concat(parts)):flush()
	local reply = read()
	if type(reply) == 'table' and reply.err then error(reply) end
	return reply
end

local scripts = {
	redis = {call = call, error_reply = function(text) return {err = text} end},
	string = string, table = table, math = math, select = select, type = type, tonumber = tonumber, tostring = tostring,
	pairs = pairs, ipairs = ipairs, pcall = pcall, error = error, assert = assert, next = next, setmetatable = setmetatable,
}
local strict = {
	__index = function(_, name) error("the script reads the global variable '" .. tostring(name) .. "', which does not exist", 2) end,
	__newindex = function(_, name) error("the script sets the global variable '" .. tostring(name) .. "'", 2) end,
}

setmetatable(scripts, strict)
local loaded = {} -- by source

while true do
	local words = read()
	local count = math.tointeger(words[2])
	rawset(scripts, 'KEYS', table.move(words, 3, 2 + count, 1, {}))
	rawset(scripts, 'ARGV', table.move(words, 3 + count, #words, 1, {}))
	loaded[words[1]] = loaded[words[1]] or assert(load(words[1], '@user_script', 't', scripts))
	local ok, reply = pcall(function() return write(loaded[words[1]]()) end)
	if not ok then
		reply = write({err = type(reply) == 'table' and reply.err or 'ERR ' .. tostring(reply)})
	end
	output:write('=' .. reply):flush()
end
