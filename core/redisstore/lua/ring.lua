-- The ring of a moving window: a string. Instants of 7 bytes each, oldest first. If there are
-- more than 32, a header and a ring of them. The header has the steps back of the clock since,
-- to be subtracted from each instant; the newest instant; the head, the count, and spaces. See
-- trail.lua.

local call, byte, sub, rep = redis.call, string.byte, string.sub, string.rep
local state = require 'state'
local int = state.int

local width = 7 -- of an entry, in bytes
local header = 56 -- room for its four numbers, in whole entries
local short = 32 * width -- the longest state without a header
local inPlace = 500000 -- entries from which a ring grows in place: it takes some 40 ms to copy them
local since = 65536 -- the most later entries that move when one is removed

local ring = {}

-- slot is where the i-th entry is, the oldest being the 0th.
local function slot(l, i) return l.start + width * ((l.head + i) % l.cap) end

-- bytes are those of n entries from the i-th on, which are in a row.
local function bytes(l, i, n)
	local from = slot(l, i)
	local to = from + width * n
	if n == 0 then
		return ''
	elseif to <= #l.text then
		return sub(l.text, from + 1, to)
	end
	return call('GETRANGE', l.key, int(from), int(to - 1))
end

-- inRow is how many of n entries from the i-th on are before the ring's end.
local function inRow(l, i, n) return math.min(n, l.cap - (l.head + i) % l.cap) end

-- read are the bytes of n entries from the i-th on, and write replaces them.
local function read(l, i, n)
	if n == 0 then return '' end
	local first = inRow(l, i, n)
	return bytes(l, i, first) .. bytes(l, i + first, n - first)
end

local function write(l, i, text)
	local first = width * inRow(l, i, math.floor(#text / width))
	call('SETRANGE', l.key, int(slot(l, i)), sub(text, 1, first))
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
		text, at = string.char(at % 256) .. text, math.floor(at / 256)
	end
	return text
end

-- load reads the beginning of the state.
function ring.load(l, key)
	local text = call('GETRANGE', key, '0', int(short - 1))
	local n, valid = math.floor(#text / width), true
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
		l.cap = math.floor(size / width)
		valid = l.cap * width == size and l.n <= l.cap and l.head < l.cap
	end
	if not valid then error(state.nonsense, 0) end
end

function ring.entry(l, place) return place < l.n and instant(l, l.n - 1 - place) or nil end

-- later is the first entry from low on that is later than at. Usually it is near low, so the
-- search doubles its step.
local function later(l, at, low)
	local high, step = low, 1
	while high < l.n and instant(l, high) <= at do
		low, high, step = high + 1, high + step, step * 2
	end
	high = math.min(high, l.n)
	while low < high do
		local mid = math.floor((low + high) / 2)
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

-- brief is the state without a header.
local function brief(l)
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

function ring.save(l, now)
	local units, n, gone = l.added, l.stored, l.n - l.stored
	local need = n + units
	l.back, l.newest, l.n = l.back + l.ahead, now, n
	if gone > 0 then
		l.head = (l.head + gone) % l.cap
	end
	-- A state without a header is written anew, and an empty ring or one of which little is used.
	local anew = l.start == 0 or n == 0 or need * 4 <= l.cap and need < inPlace
	if anew and need * width <= short then
		set(l, brief(l) .. rep(encode(now), units))
		return
	end
	if n == 0 then
		l.back = 0
	end
	local new, first = encode(now + l.back), math.min(n, l.cap - l.head)
	local cap = math.max(need, math.min(need > l.max and l.most or l.max, need < 1024 and need * 2 + 6 or math.floor(need * 9 / 8)))
	if n > 0 and need > l.cap and l.cap >= inPlace then
		-- Copying a long ring would delay all users. So it grows in place, and the entries
		-- from the head to the old end move to the new end.
		call('SETRANGE', l.key, int(header + width * cap - 1), '\0')
		if first < n then
			call('SETRANGE', l.key, int(header + width * (cap - first)), bytes(l, 0, first))
			l.head = cap - first
		end
		l.cap = cap
	elseif anew or need > l.cap then
		-- A new ring with room to grow, up to max, or above it up to most.
		local kept = read(l, 0, n)
		l.head, l.n, l.cap = 0, need, cap
		set(l, head(l) .. kept .. rep(new, units) .. rep('\0', width * (cap - need)))
		return
	end
	write(l, n, rep(new, units))
	l.n = need
	finish(l)
end

return ring
