-- Decides charges, one after the other: of each, check every limit, then move every
-- state, all at one instant of this server's clock. Integers only, all below 2^53:
-- microseconds since 1970, counts, numerators. Numbers become text by %d alone.
--
-- KEYS   one for each limit of each charge
-- ARGV   one for each key: a limit and what is asked of it, as words
--          sliding, refused, moving, fixed, elastic:  cost, max, period
--          meter:    cost, full (each whole, part), denominator
--          initial:  the same, the debt of an unseen bucket (whole, part), memory
--        before them 1 to charge or 0 to peek, and & if the next key is of the same
--        charge, else .
-- reply  for each limit twice a number, plus 1 if it has room, and the rest:
--          windows:  count; time until whole; but for counters the wait
--          meters:   time until whole; if the denominator is not 1 the part
--        or, for a charge that failed, ! and why in place of all that
--
-- State
--   sliding, refused  a sorted set: score the instant, member a number of its own,
--                     with an r behind it if the action was refused
--   moving            a header (base, newest, head, count, capacity; padded with
--                     spaces) and a ring of instants since base, 7 bytes each
--   fixed, elastic    "count end"
--   meter             "at" or "at+part/denominator": when the debt is gone
--   initial           the same and " last", the last admitted action

local call, try, format, floor = redis.call, redis.pcall, string.format, math.floor

local function int(n) return format('%d', n) end

-- expiry is the last millisecond in which the state may be of use.
local function expiry(at) return format('%d', math.ceil(at / 1000)) end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local reply, last = {}, 0

-- alone decides a charge of one bucket or funnel without memory, the commonest one,
-- in one go. It says no, having done nothing, if the state is not as it writes it.
local function alone(s, key)
	local value = try('GET', key)
	local whole, part, den, fits, changed = 0, 0, s.den, 0, false
	if value then
		if type(value) == 'table' then -- an error
			return false
		end
		local at = #value == 16 and string.find(value, '^%d+$') and value + 0
		if not at then
			local digits, p, q = string.match(value, '^(%d+)%+(%d+)/(%d+)$')
			if not digits or #digits ~= 16 or p + 0 >= q + 0 then
				return false
			end
			at, part = digits + 0, p + 0
			if q + 0 ~= den and part > 0 then
				at, part = at + 1, 0
			end
		end
		whole = at - now
		if whole < 0 then
			whole, part = 0, 0
		elseif whole >= s.full and (whole > s.full or part > s.fullPart) then
			whole, part, changed = s.full, s.fullPart, true
		end
	end
	local after, afterPart = whole + s.cost, part + s.costPart
	if afterPart >= den then
		after, afterPart = after + 1, afterPart - den
	end
	if after < s.full or (after == s.full and afterPart <= s.fullPart) then
		fits = 1
		if s.charging then
			whole, part, changed = after, afterPart, true
		end
	end
	if changed and s.charging then
		local at, text = now + whole, nil
		if part > 0 then
			text, at = format('%d+%d/%d', at, part, den), at + 1
		else
			text = format('%d', at)
		end
		local done = try('SET', key, text, 'PXAT', format('%d', floor((at + 999) / 1000)))
		if done.err then
			last = last + 1
			reply[last] = '!' .. done.err
			return true
		end
	end
	last = last + 1
	reply[last] = whole * 2 + fits
	if den > 1 then
		last = last + 1
		reply[last] = part
	end
	return true
end

local simple = {}

local function parseSimple(text)
	local mode, cost, costPart, full, fullPart, den = string.match(text, '^(%d) %. meter (%d+) (%d+) (%d+) (%d+) (%d+)$')
	simple[text] = mode and {
		charging = mode == '1', cost = cost + 0, costPart = costPart + 0,
		full = full + 0, fullPart = fullPart + 0, den = den + 0,
	} or false
	return simple[text]
end

-- machinery makes what decides all other charges. It is made only when needed: it
-- costs more than a simple decision.
local function machinery()

local function nonsense()
	error('TAILCUTSTATE: the key holds something that is not a state')
end

-- A meter is the time until its debt is gone, whole microseconds and a part.

local function addParts(whole, part, moreWhole, morePart, den)
	whole, part = whole + moreWhole, part + morePart
	if part >= den then
		return whole + 1, part - den
	end
	return whole, part
end

local function above(whole, part, fullWhole, fullPart)
	return whole > fullWhole or (whole == fullWhole and part > fullPart)
end

local Meter = {}

function Meter.parse(value)
	local at, last = string.match(value, '^(%S+) (%d+)$')
	local part, den = '0', '1'
	at = at or value
	if not string.find(at, '^%d+$') then
		at, part, den = string.match(at, '^(%d+)%+(%d+)/(%d+)$')
		if not at or part + 0 >= den + 0 then nonsense() end
	end
	if #at > 16 or (last and #last > 16) then nonsense() end
	return at + 0, part + 0, den + 0, last and last + 0
end

function Meter.new(s, key)
	return {key = key, whole = s.startWhole, part = s.startPart, kept = false, changed = false, fits = false, last = false}
end

function Meter.read(s, l)
	local value = call('GET', l.key)
	if value then
		local at, part, den, last = Meter.parse(value)
		l.kept = true
		if s.memory and last then
			l.kept = now - last < s.memory
		elseif s.memory then -- a limit without Initial wrote it
			l.kept = at > now or (at == now and part > 0)
			last = 1 / 0
		end
		if l.kept then
			if den ~= s.den and part > 0 then
				at, part = at + 1, 0
			end
			l.whole, l.part = at - now, part
			if l.whole < 0 then
				l.whole, l.part = 0, 0
			end
			if above(l.whole, l.part, s.fullWhole, s.fullPart) then
				l.whole, l.part, l.changed = s.fullWhole, s.fullPart, true
			end
			l.last = last
			if s.memory and last > now then
				l.last, l.changed = now, true
			end
		end
	end
	local whole, part = addParts(l.whole, l.part, s.costWhole, s.costPart, s.den)
	return not above(whole, part, s.fullWhole, s.fullPart)
end

function Meter.write(s, l)
	local value, whole = int(now + l.whole), now + l.whole
	if l.part > 0 then
		value, whole = value .. '+' .. int(l.part) .. '/' .. int(s.den), whole + 1
	end
	if s.memory then
		value, whole = value .. ' ' .. int(l.last), l.last + s.memory
	end
	call('SET', l.key, value, 'PXAT', expiry(whole))
end

function Meter.charge(s, l)
	l.whole, l.part = addParts(l.whole, l.part, s.costWhole, s.costPart, s.den)
	l.last = now
	Meter.write(s, l)
end

function Meter.hold(s, l)
	if s.memory and not l.fits and not l.kept then
		l.last, l.changed = now, true
	end
	if l.changed then
		Meter.write(s, l)
	end
end

function Meter.report(s, l)
	last = last + 1
	reply[last] = l.whole * 2 + (l.fits and 1 or 0)
	if s.den > 1 then
		last = last + 1
		reply[last] = l.part
	end
end

-- A counter is a count and the end of its window.

local Counter = {}

function Counter.new(s, key)
	return {key = key, count = 0, stop = now, kept = false, changed = false, fits = false}
end

function Counter.read(s, l)
	local value = call('GET', l.key)
	if value then
		local count, stop = string.match(value, '^(%d+) (%d+)$')
		if not count or #count > 16 or #stop > 16 then nonsense() end
		if stop + 0 > now then
			l.kept, l.count, l.stop = true, count + 0, stop + 0
			if l.stop > now + s.period then
				l.stop, l.changed = now + s.period, true
			end
		end
	end
	return l.count + s.cost <= s.max
end

function Counter.write(l)
	call('SET', l.key, int(l.count) .. ' ' .. int(l.stop), 'PXAT', expiry(l.stop))
end

function Counter.charge(s, l)
	l.count = l.count + s.cost
	if not l.kept or s.elastic then
		l.stop = now + s.period
	end
	Counter.write(l)
end

function Counter.hold(s, l)
	if s.elastic and not l.fits then
		l.stop, l.changed = now + s.period, true
	end
	if l.changed then
		Counter.write(l)
	end
end

function Counter.report(s, l)
	reply[last + 1], reply[last + 2] = l.count * 2 + (l.fits and 1 or 0), l.stop - now
	last = last + 2
end

-- A trail is a queue of instants; shift is how far its newest is ahead of the clock.

-- fitsTrail looks at the entry that would be one too many: places are counted from
-- the newest, as 0.
local function fitsTrail(s, l, entry)
	if s.cost > s.max then
		return false
	end
	local at = entry(l, s.max - s.cost)
	if at and at - l.shift + s.period > now then
		l.wait = at - l.shift + s.period - now
		return false
	end
	return true
end

local function reportTrail(s, l, count)
	local rest, wait = 0, 0
	if count > 0 then
		rest, wait = l.newest - l.shift + s.period - now, l.wait
	end
	reply[last + 1], reply[last + 2], reply[last + 3] = count * 2 + (l.fits and 1 or 0), rest, wait
	last = last + 3
end

local Log = {} -- the trail as a sorted set

function Log.entry(l, place)
	local found = call('ZRANGE', l.key, int(-place - 1), int(-place - 1), 'WITHSCORES')
	if not found[1] then
		return nil
	end
	local at = found[2] + 0
	if at ~= floor(at) or at < 0 or at >= 2 ^ 53 then nonsense() end
	return at, found[1]
end

function Log.new(s, key)
	return {key = key, shift = 0, id = 0, newest = false, wait = 0, waitAfter = 0, changed = false, fits = false}
end

function Log.read(s, l)
	local newest, member = Log.entry(l, 0)
	if newest then
		local id = string.match(member, '^(%d+)r?$')
		if not id or #id > 16 then nonsense() end
		l.id, l.newest = id + 0, newest
		if newest > now then
			l.shift, l.changed = newest - now, true
		end
	end
	local fits = fitsTrail(s, l, Log.entry)
	if s.counting and not fits and s.cost <= s.max then
		-- What is one too many when the refused ones are entries too.
		local place = s.max - 2 * s.cost
		l.waitAfter = place < 0 and s.period or Log.entry(l, place) - l.shift + s.period - now
	end
	return fits
end

-- addAll adds scores and members, in portions that unpack can take.
local function addAll(key, pairs)
	for i = 1, #pairs, 1000 do
		call('ZADD', key, unpack(pairs, i, math.min(i + 999, #pairs)))
	end
end

function Log.move(l)
	if l.shift > 0 then
		local all, moved = call('ZRANGE', l.key, '0', '-1', 'WITHSCORES'), {}
		for i = 1, #all, 2 do
			moved[i], moved[i + 1] = int(all[i + 1] - l.shift), all[i]
		end
		addAll(l.key, moved)
		l.shift, l.newest = 0, now
	end
end

function Log.record(s, l, mark)
	Log.move(l)
	local new = {}
	for i = 1, s.cost do
		l.id = math.max(l.id + 1, now)
		new[2 * i - 1], new[2 * i] = int(now), int(l.id) .. mark
	end
	-- Before anything is removed: after a write of any sort Redis lets a script pass
	-- its maxmemory.
	addAll(l.key, new)
	call('ZREMRANGEBYSCORE', l.key, '-inf', int(now - s.period))
	if mark ~= '' then
		local live = call('ZCARD', l.key) - s.cost
		call('ZREMRANGEBYRANK', l.key, '0', int(-math.max(s.max, live) - 1))
	end
	l.newest = now
	call('PEXPIREAT', l.key, expiry(now + s.period))
end

function Log.charge(s, l) Log.record(s, l, '') end

function Log.hold(s, l)
	if s.counting and not l.fits then
		Log.record(s, l, 'r')
		l.wait = l.waitAfter
	elseif l.changed then
		Log.move(l)
		call('PEXPIREAT', l.key, expiry(now + s.period))
	end
end

function Log.report(s, l)
	local count = 0
	if l.newest then
		count = call('ZCOUNT', l.key, '(' .. int(now - s.period + l.shift), '+inf')
	end
	reportTrail(s, l, count)
end

local Ring = {} -- the trail as a ring of bytes

local header, width = 56, 7

function Ring.slot(l, i) return header + width * ((l.head + i) % l.cap) end

function Ring.entry(l, place)
	if place >= l.n then
		return nil
	end
	local from = Ring.slot(l, l.n - 1 - place)
	local b1, b2, b3, b4, b5, b6, b7 = string.byte(call('GETRANGE', l.key, int(from), int(from + width - 1)), 1, width)
	local at = l.base + (((((b1 * 256 + b2) * 256 + b3) * 256 + b4) * 256 + b5) * 256 + b6) * 256 + b7
	if at > l.newest then nonsense() end
	return at
end

local function field(head, first, last)
	local digits = string.match(string.sub(head, first, last), '^ *(%d+)$')
	if not digits then nonsense() end
	return digits + 0
end

-- Ring.dead is how many entries no longer count: mostly few or all, so the search
-- starts at the oldest and doubles its step.
function Ring.dead(s, l)
	local gone = now - s.period + l.shift
	if l.n == 0 then
		return 0
	end
	if l.newest <= gone then
		return l.n
	end
	local function is(i) return Ring.entry(l, l.n - 1 - i) <= gone end
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

function Ring.new(s, key)
	return {key = key, base = now, newest = now, head = 0, n = 0, cap = 0, shift = 0, wait = 0, gone = 0, changed = false, fits = false}
end

function Ring.read(s, l)
	local head = call('GETRANGE', l.key, '0', int(header - 1))
	if head == '' then
		if call('GET', l.key) then nonsense() end
	else
		l.base, l.newest = field(head, 1, 16), field(head, 17, 32)
		l.head, l.n, l.cap = field(head, 33, 40), field(head, 41, 48), field(head, 49, 56)
		if l.n > l.cap or l.head >= l.cap or call('STRLEN', l.key) ~= header + width * l.cap then nonsense() end
		if l.newest > now then
			l.shift, l.changed = l.newest - now, true
		end
	end
	local fits = fitsTrail(s, l, Ring.entry)
	-- All that is read is read before anything is written. If one action does not
	-- fit, all that there are count.
	if fits or s.cost > 1 or l.n > s.max then
		l.gone = Ring.dead(s, l)
	end
	return fits
end

function Ring.move(l)
	l.base, l.newest, l.shift = l.base - l.shift, l.newest - l.shift, 0
end

function Ring.text(l)
	return format('%16d%16d%8d%8d%8d', l.base, l.newest, l.head, l.n, l.cap)
end

function Ring.bytes(l, i, n)
	if n == 0 then
		return ''
	end
	local from = Ring.slot(l, i)
	return call('GETRANGE', l.key, int(from), int(from + width * n - 1))
end

function Ring.write(s, l)
	call('SETRANGE', l.key, '0', Ring.text(l))
	call('PEXPIREAT', l.key, expiry(l.newest + s.period))
end

function Ring.charge(s, l)
	Ring.move(l)
	local gone = l.gone
	l.n, l.gone = l.n - gone, 0
	if l.n == 0 then
		l.base, l.head = now, 0
	elseif gone > 0 then
		l.head = (l.head + gone) % l.cap
	end
	local need, value, bytes = l.n + s.cost, now - l.base, {}
	for i = width, 1, -1 do
		bytes[i] = value % 256
		value = floor(value / 256)
	end
	local entry = string.char(unpack(bytes, 1, width))
	l.newest = now
	if l.n == 0 or need > l.cap or (l.cap > 64 and need * 4 <= l.cap) then
		-- A new ring with room to grow, of exactly max at the end.
		local first = math.min(l.n, l.cap - l.head)
		local kept = Ring.bytes(l, 0, first) .. Ring.bytes(l, first, l.n - first)
		l.head, l.n, l.cap = 0, need, math.max(need, math.min(s.max, need < 1024 and need * 2 + 6 or floor(need * 9 / 8)))
		local ring = kept .. string.rep(entry, s.cost) .. string.rep('\0', width * (l.cap - need))
		call('SET', l.key, Ring.text(l) .. ring, 'PXAT', expiry(now + s.period))
		return
	end
	local first = math.min(s.cost, l.cap - (l.head + l.n) % l.cap)
	call('SETRANGE', l.key, int(Ring.slot(l, l.n)), string.rep(entry, first))
	if first < s.cost then
		call('SETRANGE', l.key, int(header), string.rep(entry, s.cost - first))
	end
	l.n = need
	Ring.write(s, l)
end

function Ring.hold(s, l)
	if l.changed then
		Ring.move(l)
		Ring.write(s, l)
	end
end

function Ring.report(s, l)
	reportTrail(s, l, l.n - l.gone)
end

local machines = {
	sliding = Log, refused = Log, moving = Ring, fixed = Counter, elastic = Counter, meter = Meter, initial = Meter,
}

local function parse(text)
	local words = {}
	for word in string.gmatch(text, '%S+') do
		words[#words + 1] = word
	end
	local name = words[3]
	local s = {machine = machines[name], charging = words[1] == '1', more = words[2] == '&'}
	if s.machine == Meter then
		s.costWhole, s.costPart, s.fullWhole, s.fullPart = words[4] + 0, words[5] + 0, words[6] + 0, words[7] + 0
		s.den, s.startWhole, s.startPart = words[8] + 0, 0, 0
		if name == 'initial' then
			s.startWhole, s.startPart, s.memory = words[9] + 0, words[10] + 0, words[11] + 0
		end
	else
		s.cost, s.max, s.period = words[4] + 0, words[5] + 0, words[6] + 0
		s.counting, s.elastic = name == 'refused', name == 'elastic'
	end
	return s
end

local specs = setmetatable({}, {__index = function(all, text)
	local s = parse(text)
	all[text] = s
	return s
end})

-- decide decides the charge of the keys from i to j.
local function decide(i, j)
	local limits, all = {}, true
	for k = i, j do
		local s = specs[ARGV[k]]
		local l = s.machine.new(s, KEYS[k])
		l.fits = s.machine.read(s, l)
		all = all and l.fits
		limits[k] = l
	end
	for k = i, j do
		local s, l = specs[ARGV[k]], limits[k]
		if s.charging then
			if all then s.machine.charge(s, l) else s.machine.hold(s, l) end
		end
		s.machine.report(s, l)
	end
end

	return decide, specs
end

local decide, specs
local i, n = 1, #KEYS
while i <= n do
	local text, j = ARGV[i], i
	local s = simple[text]
	if s == nil then
		s = parseSimple(text)
	end
	if not (s and alone(s, KEYS[i])) then
		if not decide then
			decide, specs = machinery()
		end
		while specs[ARGV[j]].more do
			j = j + 1
		end
		local before = last
		local ok, problem = pcall(decide, i, j)
		if not ok then
			last = before + 1
			reply[last] = '!' .. (type(problem) == 'table' and problem.err or tostring(problem))
		end
	end
	i = j + 1
end
for k = #reply, last + 1, -1 do
	reply[k] = nil
end
return reply
