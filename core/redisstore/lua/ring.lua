-- The queue of a moving window: a string of instants, oldest first. An instant takes 7 bytes, the highest first.
-- See trail.lua for what the functions do.
--
-- Up to 32 instants are a line: they are all of the string, and each save writes it anew. More are in a ring: a header
-- of 56 bytes, and cap places, which are the rest of the string. The i-th instant, the oldest being the 0th, is in
-- place (head + i) % cap. What the other places hold means nothing. The header is text, and ends with spaces:
--
--   "back newest head n"
--
-- newest is the newest instant, and n how many there are. back is what has to be subtracted from the instants in
-- the places: how far the clock has stepped back since. So a step of the clock writes the header only.
--
-- If there is no room, a ring is written anew with more places, as long as it has few. Redis gives a string
-- that is written as a whole no more memory than it needs, and one that grows up to 1 MB more. But to write
-- a long one would delay all users, so from inPlace on a ring grows in place.

local call, byte, floor, min, sub = redis.call, string.byte, math.floor, math.min, string.sub
local state = require 'state'
local int = state.int

local width = 7 -- of an instant, in bytes
local header = 56 -- in bytes
local line = 32 -- instants
local inPlace = 500000 -- places: it takes some 20 ms to write so many anew
local piece = 8192 -- places that one command writes: Lua makes long strings slowly
local since = 65536 -- the most later entries that move when one is removed

local ring = {}

-- place is where the i-th instant begins. start is where places begin: after the header, or in a line at 0.
local function place(l, i) return l.start + width * ((l.head + i) % l.cap) end

-- bytes are those of n instants from the i-th on, whose places are in a row. text is the beginning of the string,
-- as load has found it.
local function bytes(l, i, n)
	local from = place(l, i)
	local to = from + width * n
	if to <= #l.text then return sub(l.text, from + 1, to) end
	return call('GETRANGE', l.key, int(from), int(to - 1))
end

-- inRow is how many of n instants from the i-th on are before the string's end.
local function inRow(l, i, n) return min(n, l.cap - (l.head + i) % l.cap) end

-- read are the bytes of n instants from the i-th on, and write replaces them.
local function read(l, i, n)
	if n == 0 then return '' end
	local first = inRow(l, i, n)
	return bytes(l, i, first) .. (first < n and bytes(l, i + first, n - first) or '')
end

local function write(l, i, text)
	local first = width * inRow(l, i, floor(#text / width))
	call('SETRANGE', l.key, int(place(l, i)), sub(text, 1, first))
	if first < #text then
		call('SETRANGE', l.key, int(header), sub(text, first + 1))
	end
end

local function instant(l, i)
	local b1, b2, b3, b4, b5, b6, b7 = byte(bytes(l, i, 1), 1, width)
	local at = (((((b1 * 256 + b2) * 256 + b3) * 256 + b4) * 256 + b5) * 256 + b6) * 256 + b7 - l.back
	if at > (l.newest or 2 ^ 53 - 1) then error(state.nonsense, 0) end
	return at
end

local function encode(at)
	local text = ''
	for _ = 1, width do
		text, at = string.char(at % 256) .. text, floor(at / 256)
	end
	return text
end

-- load reads the beginning of the state.
function ring.load(l, key)
	local text = call('GETRANGE', key, '0', int(width * line - 1))
	local n, valid = floor(#text / width), true
	l.key, l.text, l.start, l.back, l.head, l.n, l.cap, l.newest = key, text, 0, 0, 0, n, n, nil
	if #text > 0 and byte(text) < 32 then
		valid = n * width == #text
		l.newest = valid and instant(l, n - 1)
	elseif #text > 0 then
		local back, newest, head, count, after = string.match(text, '^(%d+) (%d+) (%d+) (%d+) *()')
		if not back or after <= header or #back > 16 or #newest > 16 or #head > 8 or #count > 8 then
			error(state.nonsense, 0)
		end
		l.start, l.back, l.newest, l.head, l.n = header, back + 0, newest + 0, head + 0, count + 0
		local size = call('STRLEN', key) - header
		l.cap = floor(size / width)
		valid = l.cap * width == size and l.n <= l.cap and l.head < l.cap
	end
	if not valid then error(state.nonsense, 0) end
end

function ring.entry(l, i) return i < l.n and instant(l, l.n - 1 - i) or nil end

-- later is the first entry from low on that is later than at. Usually it is near low, so the search
-- doubles its step.
local function later(l, at, low)
	local high, step = low, 1
	while high < l.n and instant(l, high) <= at do
		low, high, step = high + 1, high + step, step * 2
	end
	high = min(high, l.n)
	while low < high do
		local mid = floor((low + high) / 2)
		if instant(l, mid) <= at then low = mid + 1 else high = mid end
	end
	return low
end

function ring.live(l, after) return l.newest > after and l.n - later(l, after, 0) or 0 end

local function set(l, value) call('SET', l.key, value, 'PXAT', state.expiry(l.newest + l.period)) end

local function head(l) return string.format('%-56s', string.format('%d %d %d %d', l.back, l.newest, l.head, l.n)) end

local function finish(l)
	call('SETRANGE', l.key, '0', head(l))
	call('PEXPIREAT', l.key, state.expiry(l.newest + l.period))
end

-- inLine are all instants as they are in a line.
local function inLine(l)
	if l.start == 0 and l.back == 0 and l.n > 0 then return sub(l.text, width * l.head + 1) end
	local text = ''
	for i = 0, l.n - 1 do
		text = text .. encode(instant(l, i))
	end
	l.back = 0
	return text
end

function ring.remove(l, made, units)
	local n = l.n
	local to = later(l, made, math.max(0, n - since - 1))
	if n - to > since then return end
	local from = later(l, made - 1, math.max(0, to - units))
	if from == to then return end
	l.n = n - (to - from)
	if l.n == 0 then
		call('DEL', l.key)
		return
	elseif l.start == 0 then
		l.text = sub(l.text, 1, width * from) .. sub(l.text, width * to + 1)
		l.newest = instant(l, l.n - 1)
		set(l, l.text)
		return
	end
	write(l, from, read(l, to, n - to))
	l.text = ''
	l.newest = instant(l, l.n - 1)
	finish(l)
end

-- times is string.rep, which is slow in Lua 5.1 if the result is long.
local function times(text, n)
	local result = ''
	while n > 0 do
		if n % 2 == 1 then result = result .. text end
		n = floor(n / 2)
		if n > 0 then text = text .. text end
	end
	return result
end

-- fill has the i-th instant and those after it, n in all, be one.
local function fill(l, i, n, one)
	local block = times(one, min(n, piece))
	while n > 0 do
		local some = min(inRow(l, i, n), piece)
		call('SETRANGE', l.key, int(place(l, i)), sub(block, 1, width * some))
		i, n = i + some, n - some
	end
end

-- grow adds places at the end of the string. If the instants go round the old end, those before it move to
-- the new end, the last ones first, so that none is overwritten before it has moved.
local function grow(l, cap)
	local more, before = cap - l.cap, l.n > 0 and inRow(l, 0, l.n) or 0
	call('SETRANGE', l.key, int(header + width * cap - 1), '\0')
	if before < l.n then
		for i = floor((before - 1) / piece) * piece, 0, -piece do
			call('SETRANGE', l.key, int(place(l, i) + width * more), bytes(l, i, min(piece, before - i)))
		end
		l.head = l.head + more
	end
	l.cap = cap
end

-- save drops the dead instants, and adds those of now. A line is written anew, and so is an empty ring, a short one
-- without room, and one of which little is used.
function ring.save(l, now)
	local n, units = l.stored, l.added
	local need = n + units
	if l.n > n then
		l.head = (l.head + l.n - n) % l.cap
	end
	l.back, l.newest, l.n = l.back + l.ahead, now, n
	local anew = l.start == 0 or n == 0 or need * 4 <= l.cap and need < inPlace
	if anew and need <= line then
		set(l, inLine(l) .. times(encode(now), units))
		return
	end
	if n == 0 then
		l.back = 0
	end
	local one, cap = encode(now + l.back), l.cap
	if anew or need > cap then -- with room to grow, up to max, or above it up to most
		cap = math.max(need, min(need > l.max and l.most or l.max, need < 1024 and need * 2 + 6 or floor(need * 9 / 8)))
		anew = anew or l.cap < inPlace
	end
	if anew then
		local kept = read(l, 0, n)
		l.start, l.head, l.cap = header, 0, n
		if cap < inPlace then
			l.n, l.cap = need, cap
			set(l, head(l) .. kept .. times(one, units) .. times('\0', width * (cap - need)))
			return
		end
		set(l, head(l) .. kept)
		l.text = ''
	end
	if cap > l.cap then
		grow(l, cap)
	end
	fill(l, n, units, one)
	l.n = need
	finish(l)
end

return ring
