-- The queue of a moving window: a string of instants, oldest first. An instant takes 7 bytes, the
-- highest byte first. trail.lua says what the functions do, and what the fields of s are. In Go the
-- queue is in blocks of memory: see queue.go.

-- The string is a list or a ring. A list is up to 32 instants and nothing else, and each save
-- writes it anew. If there are more instants, the string becomes a ring: a header of 56 bytes, and
-- then cap places. The i-th instant is in place (head + i) % cap. The oldest instant is the 0th.
-- The bytes in the other places mean nothing. The header is text, and is filled up with spaces:
--
--   "back newest head n"
--
-- newest is the newest instant. n is how many instants there are. back is how far the clock has
-- stepped back since the instants were written. The code subtracts back from the instants in the
-- places. So if the clock steps back, only the header is written.

-- s has the fields back, newest, head, n and cap for a list too. s.start says where the places
-- begin in the string, which is 0 for a list. s.text is the beginning of the string, or '' if the
-- beginning is not known.

-- In this example a list has at most 2 instants, and max is 5. A to G are instants. A dot is a
-- place that is not used:
--
--   A B                      a list
--   0 C 0 3 | A B C . .      an action at C: a ring of 5 places
--   0 E 0 5 | A B C D E      two more actions
--   0 F 2 4 | F B C D E      an action at F, after A and B have left the window: B is still there,
--                            and means nothing
--   0 F 2 3 | F B C E F      a refund of the action at D: E and F move
--   9 G 2 4 | F B C E F      an action at G, after the clock has stepped back by 9, where G is F-9.
--                            C, E and F stand for C-9, E-9 and F-9 now, so G is written as F

-- If a short ring has no room, it is written anew with more places. Redis then gives the string no
-- more memory than it needs. If a string grows in place, Redis gives it up to 1 MB more. But to
-- write a long string anew would delay all users. Therefore a ring with inPlace places or more
-- grows in place.

local call, byte, floor, min, sub = redis.call, string.byte, math.floor, math.min, string.sub
local state = require 'state'
local int = state.int

local width = 7 -- bytes of an instant
local headerSize = 56 -- bytes of the header
local maxList = 32 -- the most instants of a list
local inPlace = 500000 -- a ring of so many places grows in place: to write it anew takes some 20 ms
local piece = 8192 -- the most places that one command writes: Lua makes long strings slowly
local maxSince = 65536 -- the most later instants that move when one is removed

local ring = {}

-- place returns where the i-th instant begins in the string.
local function place(s, i) return s.start + width * ((s.head + i) % s.cap) end

-- bytes returns the bytes of n instants from the i-th on, if their places are in a row.
local function bytes(s, i, n)
	local from = place(s, i)
	local to = from + width * n
	if to <= #s.text then return sub(s.text, from + 1, to) end
	return call('GETRANGE', s.key, int(from), int(to - 1))
end

-- beforeEnd returns how many of n instants from the i-th on are before the end of the string.
local function beforeEnd(s, i, n) return min(n, s.cap - (s.head + i) % s.cap) end

-- read returns the bytes of n instants from the i-th on. write replaces them.
local function read(s, i, n)
	if n == 0 then return '' end
	local first = beforeEnd(s, i, n)
	return bytes(s, i, first) .. (first < n and bytes(s, i + first, n - first) or '')
end

local function write(s, i, text)
	local first = width * beforeEnd(s, i, floor(#text / width))
	call('SETRANGE', s.key, int(place(s, i)), sub(text, 1, first))
	if first < #text then
		call('SETRANGE', s.key, int(headerSize), sub(text, first + 1))
	end
end

local function instant(s, i)
	local b1, b2, b3, b4, b5, b6, b7 = byte(bytes(s, i, 1), 1, width)
	local at = (((((b1 * 256 + b2) * 256 + b3) * 256 + b4) * 256 + b5) * 256 + b6) * 256 + b7 - s.back
	if at > (s.newest or 2 ^ 53 - 1) then error(state.nonsense, 0) end
	return at
end

local function encode(at)
	local text = ''
	for _ = 1, width do
		text, at = string.char(at % 256) .. text, floor(at / 256)
	end
	return text
end

-- load reads the beginning of the string, which is all of a list.
function ring.load(s, key)
	local text = call('GETRANGE', key, '0', int(width * maxList - 1))
	local n, valid = floor(#text / width), true
	s.key, s.text, s.start, s.back, s.head, s.n, s.cap, s.newest = key, text, 0, 0, 0, n, n, false
	if #text > 0 and byte(text) < 32 then
		valid = n * width == #text
		s.newest = valid and instant(s, n - 1)
	elseif #text > 0 then
		local back, newest, head, count, after = string.match(text, '^(%d+) (%d+) (%d+) (%d+) *()')
		if not back or after <= headerSize or #back > 16 or #newest > 16 or #head > 8 or #count > 8 then
			error(state.nonsense, 0)
		end
		s.start, s.back, s.newest, s.head, s.n = headerSize, back + 0, newest + 0, head + 0, count + 0
		local size = call('STRLEN', key) - headerSize
		s.cap = floor(size / width)
		valid = s.cap * width == size and s.n <= s.cap and s.head < s.cap
	end
	if not valid then error(state.nonsense, 0) end
end

function ring.fromNewest(s, i) return i < s.n and instant(s, s.n - 1 - i) or nil end

-- later searches from the index low on, and returns the index of the first instant that is later
-- than the instant at. Usually that instant is near low, so the search doubles its step.
local function later(s, at, low)
	local high, step = low, 1
	while high < s.n and instant(s, high) <= at do
		low, high, step = high + 1, high + step, step * 2
	end
	high = min(high, s.n)
	while low < high do
		local mid = floor((low + high) / 2)
		if instant(s, mid) <= at then low = mid + 1 else high = mid end
	end
	return low
end

function ring.live(s, after) return s.newest > after and s.n - later(s, after, 0) or 0 end

local function set(r, s, value) call('SET', s.key, value, 'PXAT', state.expiry(s.newest + r.period)) end

local function header(s) return string.format('%-56s', string.format('%d %d %d %d', s.back, s.newest, s.head, s.n)) end

-- saveHeader writes the header after places have changed, and sets the expiry.
local function saveHeader(r, s)
	call('SETRANGE', s.key, '0', header(s))
	call('PEXPIREAT', s.key, state.expiry(s.newest + r.period))
end

-- asList returns all instants as a list has them.
local function asList(s)
	if s.start == 0 and s.back == 0 and s.n > 0 then return sub(s.text, width * s.head + 1) end
	local text = ''
	for i = 0, s.n - 1 do
		text = text .. encode(instant(s, i))
	end
	s.back = 0
	return text
end

function ring.remove(r, made, units, s)
	local n = s.n
	local to = later(s, made, math.max(0, n - maxSince - 1))
	if n - to > maxSince then return end
	local from = later(s, made - 1, math.max(0, to - units))
	if from == to then return end
	s.n = n - (to - from)
	if s.n == 0 then
		call('DEL', s.key)
		return
	elseif s.start == 0 then
		s.text = sub(s.text, 1, width * from) .. sub(s.text, width * to + 1)
		s.newest = instant(s, s.n - 1)
		set(r, s, s.text)
		return
	end
	write(s, from, read(s, to, n - to))
	s.text = ''
	s.newest = instant(s, s.n - 1)
	saveHeader(r, s)
end

-- rep does what string.rep does, which is slow in Lua 5.1 if the result is long.
local function rep(text, n)
	local result = ''
	while n > 0 do
		if n % 2 == 1 then result = result .. text end
		n = floor(n / 2)
		if n > 0 then text = text .. text end
	end
	return result
end

-- capacity returns how many places a ring of n instants gets. Some places are for further instants.
-- Usually a ring gets at most r.max places. If it has more instants than r.max, it usually gets at
-- most s.most places.
local function capacity(r, s, n)
	local roomy = n < 1024 and n * 2 + 6 or floor(n * 9 / 8)
	return math.max(n, min(n > r.max and s.most or r.max, roomy))
end

-- grow adds places at the end of the string. The instants may reach the old end of the string, and
-- continue at the first place. Then the instants before the old end move to the new end. The last
-- instants move first, so that no instant is overwritten before it has moved.
local function grow(s, cap)
	local more, before = cap - s.cap, s.n > 0 and beforeEnd(s, 0, s.n) or 0
	call('SETRANGE', s.key, int(headerSize + width * cap - 1), '\0')
	if before < s.n then
		for i = floor((before - 1) / piece) * piece, 0, -piece do
			call('SETRANGE', s.key, int(place(s, i) + width * more), bytes(s, i, min(piece, before - i)))
		end
		s.head = s.head + more
	end
	s.cap = cap
end

-- add puts the instant now after the other instants, as often as units says. The ring has room for
-- them.
local function add(r, now, units, s)
	local one = rep(encode(now + s.back), min(units, piece))
	while units > 0 do
		local some = min(beforeEnd(s, s.n, units), piece)
		call('SETRANGE', s.key, int(place(s, s.n)), sub(one, 1, width * some))
		s.n, units = s.n + some, units - some
	end
	saveHeader(r, s)
end

-- writeRing writes a ring anew, and adds the instant now as often as units says. A long ring first
-- gets only the places of the instants that it has, and then grows in place.
local function writeRing(r, now, units, s)
	local kept, cap = read(s, 0, s.n), capacity(r, s, s.n + units)
	s.start, s.head, s.cap = headerSize, 0, s.n
	if cap < inPlace then
		local unused = cap - s.n - units
		s.n = s.n + units
		set(r, s, header(s) .. kept .. rep(encode(now + s.back), units) .. rep('\0', width * unused))
		return
	end
	set(r, s, header(s) .. kept)
	s.text = ''
	grow(s, cap)
	add(r, now, units, s)
end

-- save drops the instants that are not live, and adds the instant now, s.added times. A list or an
-- empty ring is written anew. A ring that has no room is also written anew, if it has fewer than
-- inPlace places. A ring that uses few of its places is also written anew, if it then has fewer
-- than inPlace instants. All other rings change in place.
function ring.save(r, now, s, stored)
	local units, need = s.added, stored + s.added
	if s.n > stored then
		s.head, s.n = (s.head + s.n - stored) % s.cap, stored
	end
	s.back, s.newest = s.n > 0 and s.back + s.behind or 0, now
	local full, sparse = need > s.cap, need * 4 <= s.cap
	local rewrite = s.start == 0 or s.n == 0 or sparse and need < inPlace or full and s.cap < inPlace
	if not rewrite then
		if full then grow(s, capacity(r, s, need)) end
		add(r, now, units, s)
	elseif need <= maxList then
		set(r, s, asList(s) .. rep(encode(now), units))
	else
		writeRing(r, now, units, s)
	end
end

return ring
