-- sliding, refused, moving  cost, max, period
-- reply                     1 if it has room, plus twice the count; the time until its full
--                           quota is available; if it has no room, the wait
--
-- A state is a queue of instants, as a log or as a ring.
--   sliding, refused  a sorted set: the score is the instant, the member a unique number,
--                     followed by r if the action was refused
--   moving            instants of 7 bytes each, oldest first. If there are more than 32, a
--                     header and a ring of them. The header has the steps back of the clock
--                     since, to be subtracted from each instant; the newest instant; the
--                     head, the count, and spaces

--@ parse
local methods = kind == 'moving' and ring or log
l = {
	OTHER, shadow, false, cost = a + 0, max = b + 0, period = c + 0,
	counting = kind == 'refused', forced = mode == FORCED, check = methods.check, charge = methods.charge,
}

--@ common
--@ common.text

-- roomy reports whether there is room. It reads only the newest entry that must have left the
-- window. entry returns the instant of an entry; place 0 is the newest. ahead is how far the
-- newest is ahead of a clock that stepped back.
local function roomy(l, key, entry)
	l.wait = 0
	if l.cost > l.max then
		return false
	end
	local at = entry(l, key, l.max - l.cost)
	if at and at - l.ahead + l.period > now then
		l.wait = at - l.ahead + l.period - now
		return false
	end
	return true
end

local function answer(l, count)
	local fits = l[FITS] and 1 or 0
	if count == 0 then
		return fits, 0, 0
	end
	return count * 2 + fits, l.newest - l.ahead + l.period - now, l.wait
end

--@ log
--@ trail.common

local function entry(l, key, place)
	local found = call('ZRANGE', key, int(-place - 1), int(-place - 1), 'WITHSCORES')
	if not found[1] then
		return nil
	end
	local at = found[2] + 0
	if at ~= floor(at) or at < 0 or at >= 2 ^ 53 then
		error(NONSENSE)
	end
	return at, found[1]
end

local function live(l, key)
	return call('ZCOUNT', key, '(' .. int(now - l.period + l.ahead), '+inf')
end

local log = {}

function log.check(l, key)
	l.ahead, l.id, l.newest, l.exists = 0, 0, now, false
	local newest, member = entry(l, key, 0)
	if newest then
		local id = match(member, '^(%d+)r?$')
		if not id or #id > 16 then
			error(NONSENSE)
		end
		l.id, l.newest, l.exists = id + 0, newest, true
		l.ahead = math.max(0, newest - now)
	end
	local fits = roomy(l, key, entry)
	l.units = l.cost
	if l.forced then
		l.units = math.max(0, math.min(l.cost, l.max - live(l, key)))
	elseif l.counting and not fits and l.cost <= l.max then
		-- The wait once the refused attempts are entries too.
		local place = l.max - 2 * l.cost
		l.waitAfter = place < 0 and l.period or entry(l, key, place) - l.ahead + l.period - now
	end
	return fits or l.forced
end

-- add adds scores and members, in portions that unpack can take.
local function add(key, pairs)
	for i = 1, #pairs, 1000 do
		call('ZADD', key, unpack(pairs, i, math.min(i + 999, #pairs)))
	end
end

-- shift moves all entries back to a clock that stepped back.
local function shift(l, key)
	if l.ahead > 0 then
		local all, moved = call('ZRANGE', key, '0', '-1', 'WITHSCORES'), {}
		for i = 1, #all, 2 do
			moved[i], moved[i + 1] = int(all[i + 1] - l.ahead), all[i]
		end
		add(key, moved)
		l.ahead, l.newest = 0, now
	end
end

local function record(l, key, mark)
	shift(l, key)
	local new = {}
	for i = 1, l.units do
		l.id = math.max(l.id + 1, now)
		new[2 * i - 1], new[2 * i] = int(now), int(l.id) .. mark
	end
	-- Add before removing: after any write Redis lets a script exceed maxmemory.
	add(key, new)
	call('ZREMRANGEBYSCORE', key, '-inf', int(now - l.period))
	if mark ~= '' then
		local before = call('ZCARD', key) - l.units
		call('ZREMRANGEBYRANK', key, '0', int(-math.max(l.max, before) - 1))
	end
	l.newest, l.exists = now, true
	call('PEXPIREAT', key, expiry(now + l.period))
end

function log.charge(l, key, charging, all, refused)
	if all and l.units > 0 then
		record(l, key, '')
	elseif charging and refused and l.counting and l.cost <= l.max then
		record(l, key, 'r')
		l.wait = l.waitAfter
	elseif charging and l.ahead > 0 then
		shift(l, key)
		call('PEXPIREAT', key, expiry(now + l.period))
	end
	return answer(l, l.exists and live(l, key) or 0)
end

return log

--@ bytes
local byte, sub = string.byte, string.sub
local width = 7 -- of an entry, in bytes
local header = 56 -- room for its four numbers, in whole entries
local short = 32 * width -- the longest state without a header
local beginning = int(short - 1)

-- slot is where the i-th entry is, the oldest being the 0th.
local function slot(l, i) return l.start + width * ((l.head + i) % l.cap) end

local function instant(l, key, i)
	local text = l.text
	local from = l.start + width * ((l.head + i) % l.cap)
	if from + width > #text then
		text = call('GETRANGE', key, int(from), int(from + width - 1))
		from = 0
	end
	local b1, b2, b3, b4, b5, b6, b7 = byte(text, from + 1, from + width)
	return (((((b1 * 256 + b2) * 256 + b3) * 256 + b4) * 256 + b5) * 256 + b6) * 256 + b7 - l.back
end

local function encode(at)
	local digits = {}
	for i = width, 1, -1 do
		digits[i] = at % 256
		at = (at - digits[i]) / 256
	end
	return string.char(unpack(digits))
end

-- load reads a queue and reports whether it is one. Of a long one it reads the beginning.
local function load(l, key)
	local text = call('GETRANGE', key, '0', beginning)
	local n, first = #text / width, byte(text)
	l.text, l.start, l.back, l.head, l.n, l.cap = text, 0, 0, 0, n, n
	if n == 0 then
		l.newest = now
		return true
	elseif first < 32 then
		if n % 1 > 0 then
			return false
		end
		l.newest = instant(l, key, n - 1)
		return l.newest < 2 ^ 53
	end
	local back, newest, head, n, after = match(text, '^(%d+) (%d+) (%d+) (%d+) *()')
	if not back or after <= header or #back > 16 or #newest > 16 or #head > 8 or #n > 8 then
		return false
	end
	local cap = (call('STRLEN', key) - header) / width
	l.start, l.back, l.newest, l.head, l.n, l.cap = header, back + 0, newest + 0, head + 0, n + 0, cap
	return cap % 1 == 0 and l.n <= cap and l.head < cap
end

local function set(l, key, value) call('SET', key, value, 'PXAT', expiry(l.newest + l.period)) end

local function head(l)
	return format('%-56s', format('%d %d %d %d', l.back, l.newest, l.head, l.n))
end

local function finish(l, key)
	call('SETRANGE', key, '0', head(l))
	call('PEXPIREAT', key, expiry(l.newest + l.period))
end

--@ ring
--@ trail.common

--@ trail.bytes

local long = 500000 -- entries, which take some 40 ms to copy
local present = encode(now)

local function entry(l, key, place)
	if place >= l.n then
		return nil
	end
	local at = instant(l, key, l.n - 1 - place)
	if at > l.newest then
		error(NONSENSE)
	end
	return at
end

-- dead is how many entries no longer count. Usually that is few or all, so the search starts
-- at the oldest and doubles its step.
local function dead(l, key)
	local n, gone = l.n, now - l.period + l.ahead
	if n == 0 or l.newest <= gone then
		return n
	elseif n == 1 or entry(l, key, n - 1) > gone then
		return 0
	end
	local low, high = 0, 1
	while high < n and entry(l, key, n - 1 - high) <= gone do
		low, high = high, high * 2
	end
	high = math.min(high, n)
	while high - low > 1 do
		local mid = floor((low + high) / 2)
		if entry(l, key, n - 1 - mid) <= gone then low = mid else high = mid end
	end
	return high
end

local ring = {}

function ring.check(l, key)
	if not load(l, key) then
		error(NONSENSE)
	end
	local ahead, gone, units, forced = l.newest - now, 0, l.cost, l.forced
	l.ahead = ahead > 0 and ahead or 0
	local fits = roomy(l, key, entry)
	-- Read everything before writing. If a cost of 1 does not fit, all entries count.
	if fits or units > 1 or l.n > l.max or forced then
		gone = dead(l, key)
	end
	if forced then
		units = math.max(0, math.min(units, l.max - (l.n - gone)))
	end
	l.gone, l.units = gone, units
	return fits or forced
end

-- shift moves all entries back to a clock that stepped back.
local function shift(l)
	l.back, l.newest, l.ahead = l.back + l.ahead, l.newest - l.ahead, 0
end

local function bytes(l, key, i, n)
	if n == 0 then
		return ''
	end
	local from = slot(l, i)
	if from + width * n <= #l.text then
		return sub(l.text, from + 1, from + width * n)
	end
	return call('GETRANGE', key, int(from), int(from + width * n - 1))
end

-- brief is the state without a header.
local function brief(l, key)
	local n, text = l.n, ''
	if l.start == 0 and l.back == 0 and n > 0 then
		return sub(l.text, width * l.head + 1)
	end
	for i = 0, n - 1 do
		text = text .. encode(instant(l, key, i))
	end
	l.back = 0
	return text
end

local function record(l, key)
	if l.ahead > 0 then
		shift(l)
	end
	local units, gone = l.units, l.gone
	local n = l.n - gone
	local need = n + units
	if gone > 0 then
		l.head = (l.head + gone) % l.cap
	end
	l.n, l.gone, l.newest = n, 0, now
	local anew = l.start == 0 or n == 0 or need * 4 <= l.cap and need < long
	if anew and need * width <= short then
		local kept = brief(l, key)
		l.n = need
		set(l, key, kept .. string.rep(present, units))
		return
	end
	if n == 0 then
		l.back = 0
	end
	local new = l.back == 0 and present or encode(now + l.back)
	local cap = math.max(need, math.min(l.max, need < 1024 and need * 2 + 6 or floor(need * 9 / 8)))
	local first = math.min(n, l.cap - l.head)
	if n > 0 and need > l.cap and l.cap >= long then
		-- Copying a long ring would delay all users. So it grows in place, and the entries
		-- from the head to the old end move to the new end.
		call('SETRANGE', key, int(header + width * cap - 1), '\0')
		if first < n then
			call('SETRANGE', key, int(header + width * (cap - first)), bytes(l, key, 0, first))
			l.head = cap - first
		end
		l.cap = cap
	elseif anew or need > l.cap then
		-- A new ring with room to grow, up to max.
		local kept = bytes(l, key, 0, first) .. bytes(l, key, first, n - first)
		l.head, l.n, l.cap = 0, need, cap
		set(l, key, head(l) .. kept .. string.rep(new, units) .. string.rep('\0', width * (cap - need)))
		return
	end
	first = math.min(units, l.cap - (l.head + n) % l.cap)
	call('SETRANGE', key, int(slot(l, n)), string.rep(new, first))
	if first < units then
		call('SETRANGE', key, int(header), string.rep(new, units - first))
	end
	l.n = need
	finish(l, key)
end

function ring.charge(l, key, charging, all)
	if all and l.units > 0 then
		record(l, key)
	elseif charging and l.ahead > 0 then
		shift(l)
		if l.start == 0 then
			set(l, key, brief(l, key))
		else
			finish(l, key)
		end
	end
	return answer(l, l.n - l.gone)
end

return ring
