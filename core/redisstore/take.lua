-- Decides charges, one after the other: of each, check every limit, then move every
-- state, all at one instant of this server's clock. Integers only, all below 2^53:
-- microseconds since 1970, counts, numerators. Numbers become text by %d alone.
--
-- KEYS   one for each limit of each charge
-- ARGV   one for each charge, as words: 0 to peek, 1 to charge, 2 to charge and say
--        when, 3 to charge what there is room for, with : and how far ahead of its time
--        it may be; then for each limit its rule and what is asked of it
--          sliding, refused, moving, fixed, elastic:  cost, max, period
--          meter:    cost, full (each whole, part), denominator
--          initial:  the same, the debt of an unseen bucket (whole, part), memory
--          ladder:   0, or how long a ban by hand is; refusals, within, quiet, bans
--        with ~ before it if the limit is only rehearsed. A ladder comes last.
-- reply  now, if it was to be said; for each limit twice a number, plus 1 if it has
--        room, and the rest:
--          windows:  count; time until whole; but for counters the wait
--          meters:   time until whole; if the denominator is not 1 the part; if now was
--                    to be said the number of the last refund, or 0
--          ladder:   refusals; time until forgotten, until the ban ends; rung
--        or, for a charge that failed, ! and why in place of all that
--
-- State
--   sliding, refused  a sorted set: score the instant, member a number of its own,
--                     with an r behind it if the action was refused
--   moving            a header (base, newest, head, count, capacity; padded with
--                     spaces) and a ring of instants since base, 7 bytes each
--   fixed, elastic    "count end"
--   meter             "at" or "at+part/denominator": when the debt is gone
--                     and, if turns are reserved, "@" and when the last was
--   initial           the same and " last", the last admitted action
--   both              and, after refunds, "!" and what refund.lua tells
--   ladder            "end last until rung" and the refusals: when all is forgotten,
--                     the last refusal or ban, the ban's end
--
-- Redis keeps nothing of a run, so what is not made is what is fast: no function is made
-- for the commonest charges, and what the words say is parsed once.

local call, try, format, floor = redis.call, redis.pcall, string.format, math.floor
local find, match = string.find, string.match

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local reply, last = {}, 0

local charges, keys, count = 0, 0, #ARGV -- those begun, and how many there are
local words, charging, cost, costPart, full, fullPart, den -- of the last simple charge
local several -- what decides those of several simple limits
local decide, kept -- what decides the others, and the reply before the one it decides

while true do

-- The commonest charges, of one bucket or funnel without turns or memory, are decided
-- here, by what readMeter and settleMeter do: this one and those of the same words and
-- key that follow, which are read and written once.
while charges < count do
	local text, key = ARGV[charges + 1], KEYS[keys + 1]
	if text ~= words then
		local m, a, b, c, d, e = match(text, '^([01]) meter (%d+) (%d+) (%d+) (%d+) (%d+)$')
		if not m then break end
		words, charging, cost, costPart, full, fullPart, den = text, m == '1', a + 0, b + 0, c + 0, d + 0, e + 0
	end
	local value, whole, part, changed = try('GET', key), 0, 0, false
	if value then
		if #value == 16 and find(value, '^%d+$') then
			whole = value - now
		else
			local at, p, q = match(type(value) == 'string' and value or '', '^(%d+)%+(%d+)/(%d+)$')
			if not at or #at ~= 16 or p + 0 >= q + 0 then break end
			whole, part = at - now, p + 0
			if part > 0 and q + 0 ~= den then
				whole, part = whole + 1, 0
			end
		end
		if whole < 0 then
			whole, part = 0, 0
		elseif whole >= full and (whole > full or part > fullPart) then
			whole, part, changed = full, fullPart, true
		end
	end
	local before, same = last, 0
	repeat
		same, last = same + 1, last + 1
		local after, afterPart = whole + cost, part + costPart
		if afterPart >= den then
			after, afterPart = after + 1, afterPart - den
		end
		local fits = after < full or (after == full and afterPart <= fullPart)
		if fits and charging then
			whole, part, changed = after, afterPart, true
		end
		reply[last] = whole * 2 + (fits and 1 or 0)
		if den > 1 then
			last = last + 1
			reply[last] = part
		end
	until ARGV[charges + same + 1] ~= text or KEYS[keys + same + 1] ~= key
	charges, keys = charges + same, keys + same
	if changed and charging then
		local at = now + whole
		local state, ends = format('%d', at), at
		if part > 0 then
			state, ends = format('%d+%d/%d', at, part, den), at + 1
		end
		local problem = try('SET', key, state, 'PXAT', format('%d', floor((ends + 999) / 1000))).err
		if problem then
			for i = last, before + 1, -1 do
				reply[i] = i <= before + same and '!' .. problem or nil
			end
			last = before + same
		end
	end
end

if charges == count then
	return reply
end

-- Charges of several such limits, and of counted windows, are decided likewise: without
-- a function for each, or anything that makes others dear. Not for here are those with a
-- letter that none of the three names has, with a ladder, or of a meter that the above
-- could not read.
local decided, text = false, ARGV[charges + 1]
if text ~= words and find(text, '^[012] ') and not find(text, '[~guvn]') and not find(text, 'dd') then

several = several or (function()

local plans = {} -- by words; false if they are not for here

local function parse(text)
	local mode = match(text, '^%d')
	local plan = {charging = mode ~= '0', dated = mode == '2'}
	for name, a, b, c, d, e in string.gmatch(text, '(%S+) (%d+) (%d+) (%d+) ?(%d*) ?(%d*)') do
		if name == 'meter' then
			plan[#plan + 1] = {
				cost = a + 0, costPart = b + 0, full = c + 0, fullPart = d + 0, den = e + 0,
				fits = false, changed = false, whole = 0, part = 0, after = 0, afterPart = 0,
			}
		elseif name == 'fixed' or name == 'elastic' then
			plan[#plan + 1] = {
				cost = a + 0, max = b + 0, period = c + 0, elastic = name == 'elastic', den = false,
				fits = false, changed = false, count = 0, stop = 0, width = 0,
			}
		else
			return false
		end
	end
	return plan
end

-- This decides the next charge and those that follow of the same words, and says whether
-- it could. What it cannot read it leaves as it is.
return function()
	local text, KEYS = ARGV[charges + 1], KEYS
	if plans[text] == nil then
		plans[text] = parse(text)
	end
	local plan = plans[text]
	if not plan then
		return false
	end
	local n, charging = #plan, plan.charging
	repeat
		local pass = true
		for k = 1, n do
			local l, value, fits, changed = plan[k], try('GET', KEYS[keys + k]), false, false
			if value and #value == 0 then -- an error
				return false
			end
			local den = l.den
			if den then -- as readMeter
				local whole, part, full, fullPart = 0, 0, l.full, l.fullPart
				if value then
					if #value == 16 and find(value, '^%d+$') then
						whole = value - now
					else
						local at, p, q = match(value, '^(%d+)%+(%d+)/(%d+)$')
						if not at or #at ~= 16 or p + 0 >= q + 0 then
							return false
						end
						whole, part = at - now, p + 0
						if part > 0 and q + 0 ~= den then
							whole, part = whole + 1, 0
						end
					end
					if whole < 0 then
						whole, part = 0, 0
					elseif whole >= full and (whole > full or part > fullPart) then
						whole, part, changed = full, fullPart, true
					end
				end
				local after, afterPart = whole + l.cost, part + l.costPart
				if afterPart >= den then
					after, afterPart = after + 1, afterPart - den
				end
				fits = after < full or (after == full and afterPart <= fullPart)
				l.whole, l.part, l.after, l.afterPart = whole, part, after, afterPart
			else -- as readCounter; width is that of a count whose window goes on
				local count, stop, width = 0, now, 0
				if value then
					local digits, ends = match(value, '^(%d+) (%d+)$')
					if not digits or #digits > 16 or #ends > 16 then
						return false
					end
					ends = ends + 0
					if ends > now + l.period then
						count, stop, changed = digits + 0, now + l.period, true
					elseif ends > now then
						count, stop, width = digits + 0, ends, #digits
					end
				end
				fits = count + l.cost <= l.max
				l.count, l.stop, l.width = count, stop, width
			end
			l.fits, l.changed = fits, changed
			pass = pass and fits
		end
		local before = last
		if plan.dated then
			last = last + 1
			reply[last] = now
		end
		for k = 1, n do
			local l, done = plan[k], false
			local den, fits, changed = l.den, l.fits, l.changed
			if den then -- as settleMeter
				local whole, part = l.whole, l.part
				if pass and charging then
					whole, part, changed = l.after, l.afterPart, true
				end
				if changed and charging then
					local at = now + whole
					local state, ends = format('%d', at), at
					if part > 0 then
						state, ends = format('%d+%d/%d', at, part, den), at + 1
					end
					done = try('SET', KEYS[keys + k], state, 'PXAT', format('%d', floor((ends + 999) / 1000)))
				end
				last = last + 1
				reply[last] = whole * 2 + (fits and 1 or 0)
				if den > 1 then
					last = last + 1
					reply[last] = part
				end
				if plan.dated then
					last = last + 1
					reply[last] = 0 -- there was no refund
				end
			else -- as settleCounter
				local count, stop, width = l.count, l.stop, l.width
				if charging then
					local all = pass and l.cost > 0
					if l.elastic and (all or (not fits and l.cost <= l.max)) or all and stop == now then
						stop, width, changed = now + l.period, 0, true
					end
					if all then
						count, changed = count + l.cost, true
					end
				end
				if changed and charging then
					local digits = format('%d', count)
					if #digits == width then
						-- The cheapest write: the window's end and the expiry stay.
						done = try('SETRANGE', KEYS[keys + k], '0', digits)
						done = type(done) == 'table' and done
					elseif width > 0 then
						done = try('SET', KEYS[keys + k], digits .. format(' %d', stop), 'KEEPTTL')
					else
						done = try('SET', KEYS[keys + k], digits .. format(' %d', stop), 'PXAT', format('%d', floor((stop + 999) / 1000)))
					end
				end
				reply[last + 1], reply[last + 2] = count * 2 + (fits and 1 or 0), stop - now
				last = last + 2
			end
			if done and done.err then
				for i = last, before + 2, -1 do
					reply[i] = nil
				end
				last = before + 1
				reply[last] = '!' .. done.err
				break
			end
		end
		charges, keys = charges + 1, keys + n
	until ARGV[charges + 1] ~= text
	return true
end

end)()

decided = several()
end

if not decided then

decide = decide or (function()

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
	local at, rest = match(value, '^(%d+)(.*)$')
	if not at or #at > 16 then nonsense() end
	local part, den = 0, 1
	local p, q, tail = match(rest, '^%+(%d+)/(%d+)(.*)$')
	if p then
		part, den, rest = p + 0, q + 0, tail
		if part >= den then nonsense() end
	end
	if rest == '' then
		return at + 0, part, den
	end
	local turns, last, given = match(rest, '^@?(%d*) ?(%d*)(.*)$')
	if #turns > 16 or #last > 16 then nonsense() end
	if given ~= '' then
		local till, refund = match(given, '^!(%d+)[ %d+/]* (%d+) %d+[+%d/]*$')
		if not till or #till > 16 or #refund > 16 then nonsense() end
	end
	return at + 0, part, den, turns ~= '' and turns + 0, last ~= '' and last + 0, given ~= '' and given
end

-- debt is what a meter owes now, and whether it had to be cut. Turns that are reserved
-- are not: if the clock stepped back they stay as far off as they were.
local function debt(l, at, part, den, turns)
	local whole, cut = at - now, false
	if turns and turns > now then
		whole, cut = at - turns, true
	end
	if part > 0 and den ~= l.den then
		whole, part = whole + 1, 0
	end
	if whole < 0 then
		whole, part = 0, 0
	elseif not turns and whole >= l.full and (whole > l.full or part > l.fullPart) then
		return l.full, l.fullPart, true
	end
	return whole, part, cut
end

-- pour is whether a meter has room, and the debt that it would then have.
local function pour(l, whole, part, ahead)
	whole, part = whole + l.cost, part + l.costPart
	if part >= l.den then
		whole, part = whole + 1, part - l.den
	end
	local bound = l.full + ahead
	return whole < bound or (whole == bound and part <= l.fullPart), whole, part
end

local function writeMeter(l, key, whole, part, turns, last, given)
	local at, value = now + whole, nil
	if part > 0 then
		value, at = format('%d+%d/%d', at, part, l.den), at + 1
	else
		value = format('%d', at)
	end
	if turns then
		value = value .. '@' .. int(turns)
	end
	if last then
		value, at = value .. ' ' .. int(last), last + l.memory
	end
	if given then
		value, at = value .. given, last and at or math.max(at, match(given, '%d+') + 0)
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
	if l.dated then
		last = last + 1
		reply[last] = l.given and match(l.given, ' (%d+) %d+[+%d/]*$') + 0 or 0
	end
end

-- A limit is one table, l: its numbers, which stay, and its state, which read fetches
-- and of which it says whether it has room. Then settle moves the state by what all of
-- the charge's limits say, writes it and replies.

local function readMeter(l)
	local value = call('GET', l.key)
	l.kept, l.changed, l.whole, l.part, l.turns, l.given = false, false, l.start, l.startPart, false, false
	if value then
		local at, part, den, turns, last, given = parseMeter(value)
		l.kept = true
		if l.memory and last then
			l.kept = now - last < l.memory
		elseif l.memory then -- a limit without Initial wrote it
			l.kept = at > now or (at == now and part > 0)
			last = 1 / 0
		end
		if l.kept then
			l.whole, l.part, l.changed = debt(l, at, part, den, turns)
			l.given = given and not l.changed and match(given, '%d+') + 0 > now and given
			if turns and turns > now then
				last, turns = last and last - (turns - now), now
			end
			l.last, l.turns = last, turns
			if l.memory and (last == 1 / 0 or (last > now and not turns)) then
				l.last, l.changed = now, true
			end
		end
	end
	local fits
	fits, l.after, l.afterPart = pour(l, l.whole, l.part, l.ahead)
	return fits and not l.over
end

local function above(l, whole, part)
	return whole > l.full or (whole == l.full and part > l.fullPart)
end

local function settleMeter(l, all)
	if l.charging then
		if all then
			if l.forced and above(l, l.after, l.afterPart) then -- as much as there is room for
				l.after, l.afterPart = l.full, l.fullPart
				if above(l, l.whole, l.part) then
					l.after, l.afterPart = l.whole, l.part
				end
			end
			l.whole, l.part, l.last, l.turns, l.changed = l.after, l.afterPart, now, false, true
			if above(l, l.whole, l.part) then
				l.turns, l.last = now, now + l.whole - l.full + (l.part > l.fullPart and 1 or 0)
			end
		elseif l.memory and l.refuses and not l.kept then
			l.last, l.changed = now, true
		end
		if l.changed then
			writeMeter(l, l.key, l.whole, l.part, l.turns, l.memory and l.last, l.given)
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
	l.units = l.forced and math.max(0, math.min(l.cost, l.max - l.count)) or l.cost
	return l.count + l.cost <= l.max
end

local function settleCounter(l, all)
	if l.charging then
		all = all and l.units > 0
		local moves = l.elastic and (all or l.refuses)
		if all then
			moves = moves or l.stop == now
			l.count, l.changed = l.count + l.units, true
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

function Log.count(l)
	return call('ZCOUNT', l.key, '(' .. int(now - l.period + l.shift), '+inf')
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
	l.units = l.cost
	if l.forced then
		l.units = math.max(0, math.min(l.cost, l.max - Log.count(l)))
	elseif l.counting and not fits and l.cost <= l.max then
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
	for i = 1, l.units do
		l.id = math.max(l.id + 1, now)
		new[2 * i - 1], new[2 * i] = int(now), int(l.id) .. mark
	end
	-- Before anything is removed: after a write of any sort Redis lets a script pass
	-- its maxmemory.
	addAll(l.key, new)
	call('ZREMRANGEBYSCORE', l.key, '-inf', int(now - l.period))
	if mark ~= '' then
		local live = call('ZCARD', l.key) - l.units
		call('ZREMRANGEBYRANK', l.key, '0', int(-math.max(l.max, live) - 1))
	end
	l.newest = now
	call('PEXPIREAT', l.key, expiry(now + l.period))
end

function Log.settle(l, all)
	if l.charging then
		if all and l.units > 0 then
			Log.record(l, '')
		elseif l.counting and l.refuses then
			Log.record(l, 'r')
			l.wait = l.waitAfter
		elseif l.changed then
			Log.move(l)
			call('PEXPIREAT', l.key, expiry(now + l.period))
		end
	end
	local count = 0
	if l.newest then
		count = Log.count(l)
	end
	reportTrail(l, count)
end

local Ring = {} -- the trail as a ring of bytes

local header, width = 56, 7

Ring.long = 500000 -- entries, which it takes some 20 ms to copy

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
	if fits or l.cost > 1 or l.n > l.max or l.forced then
		l.gone = Ring.dead(l)
	end
	l.units = l.forced and math.max(0, math.min(l.cost, l.max - (l.n - l.gone))) or l.cost
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
	local need, value, bytes = l.n + l.units, now - l.base, {}
	for i = width, 1, -1 do
		bytes[i] = value % 256
		value = floor(value / 256)
	end
	local entry = string.char(unpack(bytes, 1, width))
	l.newest = now
	local first = math.min(l.n, l.cap - l.head)
	local cap = math.max(need, math.min(l.max, need < 1024 and need * 2 + 6 or floor(need * 9 / 8)))
	if l.n > 0 and need > l.cap and l.cap >= Ring.long then
		-- To copy a long ring would hold up everybody: it grows where it is, and if its
		-- end is within, what is before that moves to the new end.
		call('SETRANGE', l.key, int(header + width * cap - 1), '\0')
		if first < l.n then
			call('SETRANGE', l.key, int(header + width * (cap - first)), Ring.bytes(l, 0, first))
			l.head = cap - first
		end
		l.cap = cap
	elseif l.n == 0 or need > l.cap or (l.cap > 64 and need * 4 <= l.cap) then
		-- A new ring with room to grow, of exactly max at the end.
		local kept = Ring.bytes(l, 0, first) .. Ring.bytes(l, first, l.n - first)
		l.head, l.n, l.cap = 0, need, cap
		local ring = kept .. string.rep(entry, l.units) .. string.rep('\0', width * (l.cap - need))
		call('SET', l.key, Ring.text(l) .. ring, 'PXAT', expiry(now + l.period))
		return
	end
	first = math.min(l.units, l.cap - (l.head + l.n) % l.cap)
	call('SETRANGE', l.key, int(Ring.slot(l, l.n)), string.rep(entry, first))
	if first < l.units then
		call('SETRANGE', l.key, int(header), string.rep(entry, l.units - first))
	end
	l.n = need
	Ring.finish(l)
end

function Ring.settle(l, all)
	if l.charging then
		if all and l.units > 0 then
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

-- A ladder is refusals, and bans.

local function readLadder(l)
	local value = call('GET', l.key)
	l.last, l.stop, l.rung, l.marks, l.shift = 0, 0, 0, {}, 0
	if value then
		local ends, last, stop, rung, marks = match(value, '^(%d+) (%d+) (%d+) (%d+)([ %d]*)$')
		if not ends or #ends > 16 or #last > 16 or #stop > 16 or #rung > 2 then nonsense() end
		if ends + 0 > now then
			l.last, l.stop, l.rung = last + 0, stop + 0, rung + 0
			l.shift = math.max(0, l.last - now)
			if now + l.shift >= math.max(l.last, l.stop) + l.quiet then
				l.rung = 0
			end
			for mark in string.gmatch(marks, '%d+') do
				if #mark > 16 then nonsense() end
				if mark + l.within > now + l.shift then
					l.marks[#l.marks + 1] = mark + 0
				end
			end
		end
	end
	return l.byHand > 0 and l.charging or l.stop - l.shift <= now
end

local function settleLadder(l, all, pass, banned)
	local ban, refused = all and l.byHand or 0, not pass and not banned
	if l.charging and (ban > 0 or refused or l.shift > 0) then
		l.last, l.stop = l.last - l.shift, math.max(0, l.stop - l.shift)
		for i = 1, #l.marks do
			l.marks[i] = l.marks[i] - l.shift
		end
		l.shift = 0
		if refused then
			l.last = now
			l.marks[#l.marks + 1] = now
			if #l.marks >= l.refusals then
				ban = l.bans[math.min(l.rung + 1, #l.bans)]
				l.rung = math.min(l.rung + 1, #l.bans)
			end
		end
		if ban > 0 then
			l.last, l.stop, l.marks = now, now + ban, {}
		end
		local ends = math.max(l.last, l.stop) + (l.rung > 0 and l.quiet or 0)
		if #l.marks > 0 then
			ends = math.max(ends, l.last + l.within)
		end
		local value = format('%d %d %d %d', ends, l.last, l.stop, l.rung)
		for i = 1, #l.marks do
			value = value .. ' ' .. int(l.marks[i])
		end
		call('SET', l.key, value, 'PXAT', expiry(ends))
	end
	local at = now + l.shift
	local rest = math.max(l.last, l.stop) + (l.rung > 0 and l.quiet or 0) - at
	if #l.marks > 0 then
		rest = math.max(rest, l.last + l.within - at)
	end
	reply[last + 1], reply[last + 2] = #l.marks * 2 + (l.fits and 1 or 0), math.max(0, rest)
	reply[last + 3], reply[last + 4] = math.max(0, l.stop - at), l.rung
	last = last + 4
end

local function parseLadder(words, charging)
	local n, l = {}, {read = readLadder, settle = settleLadder, charging = charging, punishes = true, bans = {}}
	for word in string.gmatch(words, '%d+') do
		n[#n + 1] = word + 0
	end
	l.byHand, l.refusals, l.within, l.quiet = n[1], n[2], n[3], n[4]
	for i = 5, #n do
		l.bans[i - 4] = n[i]
	end
	return l
end

local long

-- parse makes the limits of a charge.
local function parse(text)
	local mode, ahead = match(text, '^(%d):?(%d*)')
	local plan, charging, forced = {dated = mode == '2'}, mode ~= '0', mode == '3'
	ahead = ahead ~= '' and ahead + 0 or 0
	local limits, ladder = match(text, '^(.*) ladder (.*)$')
	for shadow, name, a, b, c, d, e, f, g, h in string.gmatch(limits or text, '(~?)(%l+) (%d+) (%d+) (%d+) ?(%d*) ?(%d*) ?(%d*) ?(%d*) ?(%d*)') do
		local l
		if name == 'meter' or name == 'initial' then
			l = {
				read = readMeter, settle = settleMeter, charging = charging, forced = forced, ahead = ahead,
				cost = a + 0, costPart = b + 0, full = c + 0, fullPart = d + 0, den = e + 0,
				start = 0, startPart = 0, memory = false,
				key = false, fits = false, refuses = false, kept = false, changed = false,
				whole = 0, part = 0, after = 0, afterPart = 0, last = 0, turns = false, given = false,
				dated = mode == '2',
			}
			l.over = above(l, l.cost, l.costPart)
			if name == 'initial' then
				l.start, l.startPart, l.memory = f + 0, g + 0, h + 0
			end
		elseif name == 'fixed' or name == 'elastic' then
			l = {
				read = readCounter, settle = settleCounter, charging = charging, forced = forced,
				cost = a + 0, max = b + 0, period = c + 0, elastic = name == 'elastic',
				key = false, fits = false, refuses = false, changed = false, count = 0, stop = 0, ends = false,
			}
			l.over = l.cost > l.max
		else
			long = long or trails()
			l = {
				read = long[name].read, settle = long[name].settle, charging = charging, forced = forced,
				cost = a + 0, max = b + 0, period = c + 0, counting = name == 'refused',
			}
			l.over = l.cost > l.max
		end
		l.shadow = shadow ~= ''
		plan[#plan + 1] = l
	end
	if ladder then
		plan[#plan + 1] = parseLadder(ladder, charging)
	end
	return plan
end

-- each decides a charge. pass is whether all limits that can refuse have room;
-- rehearsed, whether the others have.
local function each(plan)
	local pass, rehearsed, banned, from = true, true, false, keys
	keys = from + #plan
	for k = 1, #plan do
		local l = plan[k]
		l.key = KEYS[from + k]
		l.fits = l:read() or l.forced
		if l.fits then
		elseif l.shadow then
			rehearsed = false
		else
			pass, banned = false, l.punishes
		end
	end
	if plan.dated then
		last = last + 1
		reply[last] = now
	end
	for k = 1, #plan do
		local l = plan[k]
		l.refuses = not l.fits and not banned and not l.over
		l:settle(pass and (rehearsed or not l.shadow), pass, banned)
	end
end

local plans = {}

-- This decides the next charge and those that follow of words that it knows.
return function()
	repeat
		local text = ARGV[charges + 1]
		charges, kept = charges + 1, last
		plans[text] = plans[text] or parse(text)
		each(plans[text])
	until not plans[ARGV[charges + 1]]
end

end)()

local ok, problem = pcall(decide)
if not ok then
	for i = #reply, kept + 1, -1 do
		reply[i] = nil
	end
	last = kept + 1
	reply[last] = '!' .. (type(problem) == 'table' and problem.err or tostring(problem))
end

end

end
