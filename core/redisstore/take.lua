-- Decides charges, one after the other: of each, check every limit, then move every
-- state, all at one instant of this server's clock. Integers only, all below 2^53:
-- microseconds since 1970, counts, numerators. Numbers become text by %d alone.
--
-- KEYS   one for each limit of each charge
-- ARGV   one for each charge, as words: 1 to charge or 0 to peek; then for each limit
--        its rule and what is asked of it
--          sliding, refused, moving, fixed, elastic:  cost, max, period
--          meter:    cost, full (each whole, part), denominator
--          initial:  the same, the debt of an unseen bucket (whole, part), memory
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
--
-- Redis keeps nothing of a run, so what is not made is what is fast: the machines are
-- made only when needed, and what the words say is parsed once.

local call, format, floor = redis.call, string.format, math.floor
local find, match = string.find, string.match

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local reply, last = {}, 0

local charges, keys = 0, 0 -- that were begun
local first, before -- the first charge of the row under way, and the reply before it

local function int(n) return format('%d', n) end

-- expiry is the last millisecond in which the state may be of use.
local function expiry(at) return format('%d', floor((at + 999) / 1000)) end

local function nonsense()
	error('TAILCUTSTATE: the key holds something that is not a state')
end

-- A meter is the time until its debt is gone, whole microseconds and a part.

local function parseMeter(value)
	if #value == 16 and find(value, '^%d+$') then
		return value + 0, 0, 1
	end
	local at, last = match(value, '^(%S+) (%d+)$')
	local part, den = '0', '1'
	at = at or value
	if not find(at, '^%d+$') then
		at, part, den = match(at, '^(%d+)%+(%d+)/(%d+)$')
		if not at or part + 0 >= den + 0 then nonsense() end
	end
	if #at > 16 or (last and #last > 16) then nonsense() end
	return at + 0, part + 0, den + 0, last and last + 0
end

-- debt is what a meter owes now, and whether it had to be cut.
local function debt(l, at, part, den)
	local whole = at - now
	if part > 0 and den ~= l.den then
		whole, part = whole + 1, 0
	end
	if whole < 0 then
		return 0, 0, false
	elseif whole >= l.full and (whole > l.full or part > l.fullPart) then
		return l.full, l.fullPart, true
	end
	return whole, part, false
end

-- pour is whether a meter has room, and the debt that it would then have.
local function pour(l, whole, part)
	whole, part = whole + l.cost, part + l.costPart
	if part >= l.den then
		whole, part = whole + 1, part - l.den
	end
	return whole < l.full or (whole == l.full and part <= l.fullPart), whole, part
end

local function writeMeter(l, key, whole, part, last)
	local at, value = now + whole, nil
	if part > 0 then
		value, at = format('%d+%d/%d', at, part, l.den), at + 1
	else
		value = format('%d', at)
	end
	if last then
		value, at = value .. ' ' .. int(last), last + l.memory
	end
	call('SET', key, value, 'PXAT', expiry(at))
end

local function reportMeter(l, fits, whole, part)
	last = last + 1
	reply[last] = whole * 2 + (fits and 1 or 0)
	if l.den > 1 then
		last = last + 1
		reply[last] = part
	end
end

local function parseAlone(text)
	local mode, cost, costPart, full, fullPart, den = match(text, '^(%d) meter (%d+) (%d+) (%d+) (%d+) (%d+)$')
	return mode and {
		charging = mode == '1', cost = cost + 0, costPart = costPart + 0,
		full = full + 0, fullPart = fullPart + 0, den = den + 0,
	}
end

-- alone decides charges of one bucket or funnel without memory, the commonest ones:
-- this one and those of the same words and key that follow. They are read and written
-- once.
local function alone(l, text)
	local key = KEYS[keys + 1]
	keys = keys + 1
	local value = call('GET', key)
	local whole, part, changed = 0, 0, false
	if value then
		whole, part, changed = debt(l, parseMeter(value))
	end
	while true do
		local fits, after, afterPart = pour(l, whole, part)
		if fits and l.charging then
			whole, part, changed = after, afterPart, true
		end
		reportMeter(l, fits, whole, part)
		if ARGV[charges + 1] ~= text or KEYS[keys + 1] ~= key then
			break
		end
		charges, keys = charges + 1, keys + 1
	end
	if changed and l.charging then
		writeMeter(l, key, whole, part)
	end
end

-- machinery makes what decides all other charges. A limit is one table, l: its
-- numbers, which stay, and its state, which read fetches and of which it says whether
-- it has room. Then settle moves the state by what all of the charge's limits say,
-- writes it and replies.
local function machinery()

local function readMeter(l)
	local value = call('GET', l.key)
	l.kept, l.changed, l.whole, l.part = false, false, l.start, l.startPart
	if value then
		local at, part, den, last = parseMeter(value)
		l.kept = true
		if l.memory and last then
			l.kept = now - last < l.memory
		elseif l.memory then -- a limit without Initial wrote it
			l.kept = at > now or (at == now and part > 0)
			last = 1 / 0
		end
		if l.kept then
			l.whole, l.part, l.changed = debt(l, at, part, den)
			l.last = last
			if l.memory and last > now then
				l.last, l.changed = now, true
			end
		end
	end
	local fits
	fits, l.after, l.afterPart = pour(l, l.whole, l.part)
	return fits
end

local function settleMeter(l, all)
	if l.charging then
		if all then
			l.whole, l.part, l.last, l.changed = l.after, l.afterPart, now, true
		elseif l.memory and not l.fits and not l.kept then
			l.last, l.changed = now, true
		end
		if l.changed then
			writeMeter(l, l.key, l.whole, l.part, l.memory and l.last)
		end
	end
	reportMeter(l, l.fits, l.whole, l.part)
end

-- A counter is a count and the end of its window.

local function readCounter(l)
	local value = call('GET', l.key)
	l.count, l.stop, l.ends, l.changed = 0, now, false, false
	if value then
		local count, ends = match(value, '^(%d+) (%d+)$')
		if not count or #count > 16 or #ends > 16 then nonsense() end
		local stop = ends + 0
		if stop > now + l.period then
			l.count, l.stop, l.changed = count + 0, now + l.period, true
		elseif stop > now then
			l.count, l.stop, l.ends = count + 0, stop, ends
		end
	end
	return l.count + l.cost <= l.max
end

local function settleCounter(l, all)
	if l.charging then
		local moves = l.elastic and (all or not l.fits)
		if all then
			moves = moves or l.stop == now
			l.count, l.changed = l.count + l.cost, true
		end
		if moves then
			l.stop, l.ends, l.changed = now + l.period, false, true
		end
		if l.ends and l.changed then
			-- The window goes on, and its expiry, which is half the price, with it.
			call('SET', l.key, int(l.count) .. ' ' .. l.ends, 'KEEPTTL')
		elseif l.changed then
			call('SET', l.key, int(l.count) .. ' ' .. int(l.stop), 'PXAT', expiry(l.stop))
		end
	end
	reply[last + 1], reply[last + 2] = l.count * 2 + (l.fits and 1 or 0), l.stop - now
	last = last + 2
end

-- trails makes the machines of what is more than a short string.
local function trails()

-- A trail is a queue of instants; shift is how far its newest is ahead of the clock.

-- fitsTrail looks at the entry that would be one too many: places are counted from
-- the newest, as 0.
local function fitsTrail(l, entry)
	if l.cost > l.max then
		return false
	end
	local at = entry(l, l.max - l.cost)
	if at and at - l.shift + l.period > now then
		l.wait = at - l.shift + l.period - now
		return false
	end
	return true
end

local function reportTrail(l, count)
	local rest, wait = 0, 0
	if count > 0 then
		rest, wait = l.newest - l.shift + l.period - now, l.wait
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

function Log.read(l)
	l.shift, l.id, l.newest, l.wait, l.changed = 0, 0, false, 0, false
	local newest, member = Log.entry(l, 0)
	if newest then
		local id = match(member, '^(%d+)r?$')
		if not id or #id > 16 then nonsense() end
		l.id, l.newest = id + 0, newest
		if newest > now then
			l.shift, l.changed = newest - now, true
		end
	end
	local fits = fitsTrail(l, Log.entry)
	if l.counting and not fits and l.cost <= l.max then
		-- What is one too many when the refused ones are entries too.
		local place = l.max - 2 * l.cost
		l.waitAfter = place < 0 and l.period or Log.entry(l, place) - l.shift + l.period - now
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

function Log.record(l, mark)
	Log.move(l)
	local new = {}
	for i = 1, l.cost do
		l.id = math.max(l.id + 1, now)
		new[2 * i - 1], new[2 * i] = int(now), int(l.id) .. mark
	end
	-- Before anything is removed: after a write of any sort Redis lets a script pass
	-- its maxmemory.
	addAll(l.key, new)
	call('ZREMRANGEBYSCORE', l.key, '-inf', int(now - l.period))
	if mark ~= '' then
		local live = call('ZCARD', l.key) - l.cost
		call('ZREMRANGEBYRANK', l.key, '0', int(-math.max(l.max, live) - 1))
	end
	l.newest = now
	call('PEXPIREAT', l.key, expiry(now + l.period))
end

function Log.settle(l, all)
	if l.charging then
		if all then
			Log.record(l, '')
		elseif l.counting and not l.fits then
			Log.record(l, 'r')
			l.wait = l.waitAfter
		elseif l.changed then
			Log.move(l)
			call('PEXPIREAT', l.key, expiry(now + l.period))
		end
	end
	local count = 0
	if l.newest then
		count = call('ZCOUNT', l.key, '(' .. int(now - l.period + l.shift), '+inf')
	end
	reportTrail(l, count)
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
	local digits = match(string.sub(head, first, last), '^ *(%d+)$')
	if not digits then nonsense() end
	return digits + 0
end

-- Ring.dead is how many entries no longer count: mostly few or all, so the search
-- starts at the oldest and doubles its step.
function Ring.dead(l)
	local gone = now - l.period + l.shift
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

function Ring.read(l)
	l.base, l.newest, l.head, l.n, l.cap = now, now, 0, 0, 0
	l.shift, l.wait, l.gone, l.changed = 0, 0, 0, false
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
	local fits = fitsTrail(l, Ring.entry)
	-- All that is read is read before anything is written. If one action does not
	-- fit, all that there are count.
	if fits or l.cost > 1 or l.n > l.max then
		l.gone = Ring.dead(l)
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

function Ring.finish(l)
	call('SETRANGE', l.key, '0', Ring.text(l))
	call('PEXPIREAT', l.key, expiry(l.newest + l.period))
end

function Ring.charge(l)
	Ring.move(l)
	local gone = l.gone
	l.n, l.gone = l.n - gone, 0
	if l.n == 0 then
		l.base, l.head = now, 0
	elseif gone > 0 then
		l.head = (l.head + gone) % l.cap
	end
	local need, value, bytes = l.n + l.cost, now - l.base, {}
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
		l.head, l.n, l.cap = 0, need, math.max(need, math.min(l.max, need < 1024 and need * 2 + 6 or floor(need * 9 / 8)))
		local ring = kept .. string.rep(entry, l.cost) .. string.rep('\0', width * (l.cap - need))
		call('SET', l.key, Ring.text(l) .. ring, 'PXAT', expiry(now + l.period))
		return
	end
	local first = math.min(l.cost, l.cap - (l.head + l.n) % l.cap)
	call('SETRANGE', l.key, int(Ring.slot(l, l.n)), string.rep(entry, first))
	if first < l.cost then
		call('SETRANGE', l.key, int(header), string.rep(entry, l.cost - first))
	end
	l.n = need
	Ring.finish(l)
end

function Ring.settle(l, all)
	if l.charging then
		if all then
			Ring.charge(l)
		elseif l.changed then
			Ring.move(l)
			Ring.finish(l)
		end
	end
	reportTrail(l, l.n - l.gone)
end

	return {sliding = Log, refused = Log, moving = Ring}
end

local long

-- parse makes the limits of a charge.
local function parse(text)
	local plan, charging = {}, match(text, '^%d') == '1'
	for name, a, b, c, d, e, f, g, h in string.gmatch(text, '(%l+) (%d+) (%d+) (%d+) ?(%d*) ?(%d*) ?(%d*) ?(%d*) ?(%d*)') do
		local l
		if name == 'meter' or name == 'initial' then
			l = {
				read = readMeter, settle = settleMeter, charging = charging,
				cost = a + 0, costPart = b + 0, full = c + 0, fullPart = d + 0, den = e + 0,
				start = 0, startPart = 0, memory = false,
				key = false, fits = false, kept = false, changed = false,
				whole = 0, part = 0, after = 0, afterPart = 0, last = 0,
			}
			if name == 'initial' then
				l.start, l.startPart, l.memory = f + 0, g + 0, h + 0
			end
		elseif name == 'fixed' or name == 'elastic' then
			l = {
				read = readCounter, settle = settleCounter, charging = charging,
				cost = a + 0, max = b + 0, period = c + 0, elastic = name == 'elastic',
				key = false, fits = false, changed = false, count = 0, stop = 0, ends = false,
			}
		else
			long = long or trails()
			l = {
				read = long[name].read, settle = long[name].settle, charging = charging,
				cost = a + 0, max = b + 0, period = c + 0, counting = name == 'refused',
			}
		end
		plan[#plan + 1] = l
	end
	return plan
end

local function several(plan)
	local all, from = true, keys
	keys = from + #plan
	for k = 1, #plan do
		local l = plan[k]
		l.key = KEYS[from + k]
		l.fits = l:read()
		all = all and l.fits
	end
	for k = 1, #plan do
		plan[k]:settle(all)
	end
end

	return parse, several
end

local simple, plans = {}, {}
local parse, several

-- decide decides the charges that are left.
local function decide()
	while charges < #ARGV do
		charges = charges + 1
		first, before = charges, last
		local text = ARGV[charges]
		local l, plan = simple[text], plans[text]
		if not l and not plan then
			l = parseAlone(text)
			if l then
				simple[text] = l
			else
				if not parse then
					parse, several = machinery()
				end
				plan = parse(text)
				plans[text] = plan
			end
		end
		if l then
			alone(l, text)
		else
			several(plan)
		end
	end
end

repeat
	local ok, problem = pcall(decide)
	if not ok then
		last = before
		for _ = first, charges do
			last = last + 1
			reply[last] = '!' .. (type(problem) == 'table' and problem.err or tostring(problem))
		end
	end
until ok
for k = #reply, last + 1, -1 do
	reply[k] = nil
end
return reply
