-- sliding, refused, moving  cost, max, period
-- reply                     whether it has room, and twice the count; the time until it is
--                           whole; if it has no room, the wait
--
-- A state is a queue of instants, as a log or as a ring.
--   sliding, refused  a sorted set: the score is the instant, the member a number of its
--                     own, with an r behind it if the action was refused
--   moving            a header (base, newest, head, count, capacity; padded with spaces)
--                     and a ring of instants since base, 7 bytes each

--@ parse
local methods = kind == 'moving' and ring or log
l = {
	OTHER, shadow, false, cost = a + 0, max = b + 0, period = c + 0,
	counting = kind == 'refused', forced = forced, check = methods.check, charge = methods.charge,
}

--@ common
--@ common.text

-- roomy looks at the entry that would be one too many. entry is the instant of an entry;
-- places are counted from the newest, as 0. ahead is how far the newest is ahead of a clock
-- that stepped back.
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
		-- The one too many once the refused ones are entries too.
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
	-- Before anything is removed: after a write of any sort Redis lets a script pass
	-- its maxmemory.
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
local header, width = 56, 7

-- load reads the header of a ring. It returns false if there is none, and nothing if the
-- value is no ring.
local function load(l, key)
	local head = call('GETRANGE', key, '0', int(header - 1))
	if head == '' then
		if call('GET', key) then
			return
		end
		return false
	end
	local n = {}
	for i, at in ipairs({1, 17, 33, 41, 49}) do
		n[i] = match(string.sub(head, at, at + (i < 3 and 15 or 7)), '^ *(%d+)$')
		if not n[i] then
			return
		end
		n[i] = n[i] + 0
	end
	l.base, l.newest, l.head, l.n, l.cap = n[1], n[2], n[3], n[4], n[5]
	return l.n <= l.cap and l.head < l.cap and call('STRLEN', key) == header + width * l.cap or nil
end

-- slot is where the i-th entry is, the oldest being the 0th.
local function slot(l, i) return header + width * ((l.head + i) % l.cap) end

local function instant(l, key, i)
	local from = slot(l, i)
	local b1, b2, b3, b4, b5, b6, b7 = string.byte(call('GETRANGE', key, int(from), int(from + width - 1)), 1, width)
	return l.base + (((((b1 * 256 + b2) * 256 + b3) * 256 + b4) * 256 + b5) * 256 + b6) * 256 + b7
end

local function head(l) return format('%16d%16d%8d%8d%8d', l.base, l.newest, l.head, l.n, l.cap) end

local function finish(l, key)
	call('SETRANGE', key, '0', head(l))
	call('PEXPIREAT', key, expiry(l.newest + l.period))
end

--@ ring
--@ trail.common

--@ trail.bytes

local long = 500000 -- entries, which take some 20 ms to copy

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

-- dead is how many entries no longer count. Mostly few or all do, so the search starts at
-- the oldest and doubles its step.
local function dead(l, key)
	local gone = now - l.period + l.ahead
	if l.n == 0 then
		return 0
	end
	if l.newest <= gone then
		return l.n
	end
	local function is(i) return entry(l, key, l.n - 1 - i) <= gone end
	if not is(0) then
		return 0
	end
	local low, high = 0, 1
	while high < l.n and is(high) do
		low, high = high, high * 2
	end
	high = math.min(high, l.n)
	while high - low > 1 do
		local mid = floor((low + high) / 2)
		if is(mid) then low = mid else high = mid end
	end
	return high
end

local ring = {}

function ring.check(l, key)
	l.base, l.newest, l.head, l.n, l.cap, l.gone = now, now, 0, 0, 0, 0
	if load(l, key) == nil then
		error(NONSENSE)
	end
	l.ahead = math.max(0, l.newest - now)
	local fits = roomy(l, key, entry)
	-- All that is read is read before anything is written. If one action does not
	-- fit, all entries count.
	if fits or l.cost > 1 or l.n > l.max or l.forced then
		l.gone = dead(l, key)
	end
	l.units = l.forced and math.max(0, math.min(l.cost, l.max - (l.n - l.gone))) or l.cost
	return fits or l.forced
end

-- shift moves all entries back to a clock that stepped back.
local function shift(l)
	l.base, l.newest, l.ahead = l.base - l.ahead, l.newest - l.ahead, 0
end

local function bytes(l, key, i, n)
	if n == 0 then
		return ''
	end
	local from = slot(l, i)
	return call('GETRANGE', key, int(from), int(from + width * n - 1))
end

local function record(l, key)
	shift(l)
	local gone = l.gone
	l.n, l.gone = l.n - gone, 0
	if l.n == 0 then
		l.base, l.head = now, 0
	elseif gone > 0 then
		l.head = (l.head + gone) % l.cap
	end
	local need, value, digits = l.n + l.units, now - l.base, {}
	for i = width, 1, -1 do
		digits[i] = value % 256
		value = floor(value / 256)
	end
	local new = string.char(unpack(digits, 1, width))
	l.newest = now
	local first = math.min(l.n, l.cap - l.head)
	local cap = math.max(need, math.min(l.max, need < 1024 and need * 2 + 6 or floor(need * 9 / 8)))
	if l.n > 0 and need > l.cap and l.cap >= long then
		-- To copy a long ring would hold up everybody: it grows where it is, and if its
		-- end is within, what is before that moves to the new end.
		call('SETRANGE', key, int(header + width * cap - 1), '\0')
		if first < l.n then
			call('SETRANGE', key, int(header + width * (cap - first)), bytes(l, key, 0, first))
			l.head = cap - first
		end
		l.cap = cap
	elseif l.n == 0 or need > l.cap or (l.cap > 64 and need * 4 <= l.cap) then
		-- A new ring with room to grow, of exactly max at the end.
		local kept = bytes(l, key, 0, first) .. bytes(l, key, first, l.n - first)
		l.head, l.n, l.cap = 0, need, cap
		local all = kept .. string.rep(new, l.units) .. string.rep('\0', width * (cap - need))
		call('SET', key, head(l) .. all, 'PXAT', expiry(now + l.period))
		return
	end
	first = math.min(l.units, l.cap - (l.head + l.n) % l.cap)
	call('SETRANGE', key, int(slot(l, l.n)), string.rep(new, first))
	if first < l.units then
		call('SETRANGE', key, int(header), string.rep(new, l.units - first))
	end
	l.n = need
	finish(l, key)
end

function ring.charge(l, key, charging, all)
	if all and l.units > 0 then
		record(l, key)
	elseif charging and l.ahead > 0 then
		shift(l)
		finish(l, key)
	end
	return answer(l, l.n - l.gone)
end

return ring
