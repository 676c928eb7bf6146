-- The queue of a moving window: a string of instants, oldest first. An instant takes 7 bytes, the highest first.
-- trail.lua says what the functions do, and what the fields of l are. queue.go keeps its blocks in memory, and has
-- none of this.
--
-- Up to 32 instants are a list: they are all of the string, and each save writes it anew. More are in a ring: a header
-- of 56 bytes, and cap places, which are the rest of the string. The i-th instant, the oldest being the 0th, is in
-- place (head + i) % cap. What the other places hold means nothing. The header is text, and ends with spaces:
--
--   "back newest head n"
--
-- newest is the newest instant, and n how many there are. back is what has to be subtracted from the instants in
-- the places: how far the clock has stepped back since. So a step of the clock writes the header only.
--
-- l has all of these, for a list too, and start: where the places begin in the string, which is 0 in a list. l.text is
-- the beginning of the string as load has found it, or '' if that has changed.
--
-- An example, as if a list had at most 2 instants. The window has 5 of them. A to G are instants, and a dot is
-- a place that is not used.
--
--   A B                      a list
--   0 C 0 3 | A B C . .      an action at C: a ring of 5 places
--   0 E 0 5 | A B C D E      two more actions
--   0 F 2 4 | F B C D E      an action at F, when A and B are over: B is still there, and means nothing
--   0 F 2 3 | F B C E F      a refund of the action at D: the later ones move
--   9 G 2 4 | F B C E F      an action at G, which is F-9, since the clock has stepped back: C, E and F are C-9, E-9 and
--                            F-9 now, and G is written as F
--
-- If there is no room, a ring is written anew with more places, as long as it has few. Redis gives a string
-- that is written as a whole no more memory than it needs, and one that grows up to 1 MB more. But to write
-- a long one would delay all users, so from inPlace on a ring grows in place.

local call, byte, floor, min, sub = redis.call, string.byte, math.floor, math.min, string.sub
local state = require 'state'
local int = state.int

local width = 7 -- of an instant, in bytes
local headerSize = 56 -- in bytes
local maxList = 32 -- instants
local inPlace = 500000 -- places: it takes some 20 ms to write so many anew
local piece = 8192 -- places that one command writes: Lua makes long strings slowly
local maxSince = 65536 -- the most later entries that move when one is removed

local ring = {}

-- place is where the i-th instant begins in the string.
local function place(l, i) return l.start + width * ((l.head + i) % l.cap) end

-- bytes are those of n instants from the i-th on, whose places are in a row.
local function bytes(l, i, n)
	local from = place(l, i)
	local to = from + width * n
	if to <= #l.text then return sub(l.text, from + 1, to) end
	return call('GETRANGE', l.key, int(from), int(to - 1))
end

-- beforeEnd is how many of n instants from the i-th on are before the string's end.
local function beforeEnd(l, i, n) return min(n, l.cap - (l.head + i) % l.cap) end

-- read are the bytes of n instants from the i-th on, and write replaces them.
local function read(l, i, n)
	if n == 0 then return '' end
	local first = beforeEnd(l, i, n)
	return bytes(l, i, first) .. (first < n and bytes(l, i + first, n - first) or '')
end

local function write(l, i, text)
	local first = width * beforeEnd(l, i, floor(#text / width))
	call('SETRANGE', l.key, int(place(l, i)), sub(text, 1, first))
	if first < #text then
		call('SETRANGE', l.key, int(headerSize), sub(text, first + 1))
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
	local text = call('GETRANGE', key, '0', int(width * maxList - 1))
	local n, valid = floor(#text / width), true
	l.key, l.text, l.start, l.back, l.head, l.n, l.cap, l.newest = key, text, 0, 0, 0, n, n, nil
	if #text > 0 and byte(text) < 32 then
		valid = n * width == #text
		l.newest = valid and instant(l, n - 1)
	elseif #text > 0 then
		local back, newest, head, count, after = string.match(text, '^(%d+) (%d+) (%d+) (%d+) *()')
		if not back or after <= headerSize or #back > 16 or #newest > 16 or #head > 8 or #count > 8 then
			error(state.nonsense, 0)
		end
		l.start, l.back, l.newest, l.head, l.n = headerSize, back + 0, newest + 0, head + 0, count + 0
		local size = call('STRLEN', key) - headerSize
		l.cap = floor(size / width)
		valid = l.cap * width == size and l.n <= l.cap and l.head < l.cap
	end
	if not valid then error(state.nonsense, 0) end
end

function ring.fromNewest(l, i) return i < l.n and instant(l, l.n - 1 - i) or nil end

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

local function header(l) return string.format('%-56s', string.format('%d %d %d %d', l.back, l.newest, l.head, l.n)) end

-- saveHeader ends a save that has changed places.
local function saveHeader(l)
	call('SETRANGE', l.key, '0', header(l))
	call('PEXPIREAT', l.key, state.expiry(l.newest + l.period))
end

-- asList are all instants as they are in a list.
local function asList(l)
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
	local to = later(l, made, math.max(0, n - maxSince - 1))
	if n - to > maxSince then return end
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
	saveHeader(l)
end

-- rep is string.rep, which is slow in Lua 5.1 if the result is long.
local function rep(text, n)
	local result = ''
	while n > 0 do
		if n % 2 == 1 then result = result .. text end
		n = floor(n / 2)
		if n > 0 then text = text .. text end
	end
	return result
end

-- capacity is how many places a ring of n instants gets: some to grow, up to max, or above it up to most.
local function capacity(l, n)
	local roomy = n < 1024 and n * 2 + 6 or floor(n * 9 / 8)
	return math.max(n, min(n > l.max and l.most or l.max, roomy))
end

-- grow adds places at the end of the string. If the instants go round the old end, those before it move to
-- the new end, the last ones first, so that none is overwritten before it has moved.
local function grow(l, cap)
	local more, before = cap - l.cap, l.n > 0 and beforeEnd(l, 0, l.n) or 0
	call('SETRANGE', l.key, int(headerSize + width * cap - 1), '\0')
	if before < l.n then
		for i = floor((before - 1) / piece) * piece, 0, -piece do
			call('SETRANGE', l.key, int(place(l, i) + width * more), bytes(l, i, min(piece, before - i)))
		end
		l.head = l.head + more
	end
	l.cap = cap
end

-- add puts units of now after the instants. There is room.
local function add(l, units, now)
	local one = rep(encode(now + l.back), min(units, piece))
	while units > 0 do
		local some = min(beforeEnd(l, l.n, units), piece)
		call('SETRANGE', l.key, int(place(l, l.n)), sub(one, 1, width * some))
		l.n, units = l.n + some, units - some
	end
	saveHeader(l)
end

-- writeRing writes a ring anew, with more places, or with fewer, and with units of now. A long one gets only the places of its
-- instants, and then grows in place.
local function writeRing(l, units, now)
	local kept, cap = read(l, 0, l.n), capacity(l, l.n + units)
	l.start, l.head, l.cap = headerSize, 0, l.n
	if cap < inPlace then
		local unused = cap - l.n - units
		l.n = l.n + units
		set(l, header(l) .. kept .. rep(encode(now + l.back), units) .. rep('\0', width * unused))
		return
	end
	set(l, header(l) .. kept)
	l.text = ''
	grow(l, cap)
	add(l, units, now)
end

-- save drops the dead instants, and adds those of now. A list is written anew, and so is an empty ring. Unless it
-- is long, so is one of which little is used, and one without room.
function ring.save(l, now)
	local units, need = l.added, l.stored + l.added
	if l.n > l.stored then
		l.head, l.n = (l.head + l.n - l.stored) % l.cap, l.stored
	end
	l.back, l.newest = l.n > 0 and l.back + l.behind or 0, now
	local full, sparse = need > l.cap, need * 4 <= l.cap
	local rewrite = l.start == 0 or l.n == 0 or sparse and need < inPlace or full and l.cap < inPlace
	if not rewrite then
		if full then grow(l, capacity(l, need)) end
		add(l, units, now)
	elseif need <= maxList then
		set(l, asList(l) .. rep(encode(now), units))
	else
		writeRing(l, units, now)
	end
end

return ring
