-- meter    the times of cost and burst; parts: how many make a microsecond; if more than 1,
--          the parts of cost and burst
-- initial  for a TokenBucket with Initial: the same, always with parts; the debt of a bucket
--          without a state, its parts; how long the bucket is kept
-- lone     cost and burst, each an argument: mode 1 of a meter in microseconds, not rehearsed
-- reply    1 if it has room, plus twice the time until its full quota is available; the parts
--          of that, if there are parts; in mode 2 the number of the last refund, or 0
--
-- A state is "tat": the instant at which the debt ends, in GCRA the theoretical arrival
-- time. After it there may be
--   "+part"   parts of a microsecond
--   "@at"     the instant at which a waiting caller last reserved a turn
--   " at"     the instant at which the state is forgotten, of a bucket with Initial
--   "!until"  and refunds, " number tat", oldest first; see refund.lua

--@ text
--@ common.text

-- parse reads a state. It returns nothing if value is not a state.
local function parse(value, parts)
	local tat, rest = match(value, '^(%d+)(.*)$')
	if not tat or #tat > 16 then
		return
	end
	local part, tail = match(rest, '^%+(%d+)(.*)$')
	if part then
		if part + 0 >= parts then
			return
		end
		rest = tail
	end
	local turns, after = match(rest, '^@(%d+)(.*)$')
	rest = turns and after or rest
	local forget, refunds = match(rest, '^ (%d+)(.*)$')
	rest = forget and refunds or rest
	if turns and #turns > 16 or forget and #forget > 16 then
		return
	end
	if rest ~= '' then
		local till, number = match(rest, '^!(%d+)[ %d+]* (%d+) %d+%+?%d*$')
		if not till or #till > 16 or #number > 16 then
			return
		end
	end
	return tat + 0, part and part + 0 or 0, turns and turns + 0, forget and forget + 0, rest
end

-- write writes a state. It expires when the full quota is available, or when it is forgotten.
local function write(key, tat, part, turns, forget, refunds)
	local state, ends = format('%d', tat), tat
	if part > 0 then
		state, ends = format('%d+%d', tat, part), tat + 1
	end
	if turns then
		state = state .. format('@%d', turns)
	end
	if refunds ~= '' then -- 100 years at most, should the bytes be garbled
		ends = math.max(ends, math.min(match(refunds, '%d+') + 0, now + 3155760000000000))
	end
	if forget then
		state, ends = state .. format(' %d', forget), forget
	end
	if ends <= now then
		return call('DEL', key)
	end
	return call('SET', key, state .. refunds, 'PXAT', expiry(ends))
end

--@ fields
local COST, BURST, PARTS, COST_PART, BURST_PART, BOUND, ALWAYS = 7, 8, 9, 10, 11, 12, 13
local DEBT, DEBT_PART, AFTER, AFTER_PART, SPECIAL = 14, 15, 16, 17, 18

--@ state
local cost, burst, parts, costPart, burstPart
local bound -- the debt that the charge may lead to, without its part
local always -- it needs the rare methods whatever its state
local debt, part, after, afterPart -- now, and after the charge
local special -- it needs the rare methods

--@ parse
machine = METER
cost = a + 0
burst = b + 0
if c == '1' and kind == 'meter' then
	parts = 1
	costPart = 0
	burstPart = 0
else
	costPart, burstPart, rest = match(rest, '^,(%d+),(%d+)(.*)')
	parts, costPart, burstPart = c + 0, costPart + 0, burstPart + 0
end
bound = burst
always = kind == 'initial' or ahead > 0 or mode == FORCED
if keys > 1 or always then
	--@ meter.array
end
if always then -- forced: charge what there is room for; over: the cost exceeds the burst; memory: ForgetAfter
	l.forced, l.memory = mode == FORCED, false
	if kind == 'initial' then
		local start, startPart, memory = match(rest, '(%d+),(%d+),(%d+)')
		l.start, l.startPart, l.memory = start + 0, startPart + 0, memory + 0
	end
	l.over = cost > burst or (cost == burst and costPart > burstPart)
	l[BOUND] = l.forced and 2 ^ 53 or l.over and -1 or shadow and burst or burst + ahead
end

--@ array
l = {METER, shadow, nil, nil, nil, nil, cost, burst, parts, costPart, burstPart, burst, always, nil, nil, nil, nil, nil}

--@ load
cost = l[COST]
burst = l[BURST]
parts = l[PARTS]
costPart = l[COST_PART]
burstPart = l[BURST_PART]
bound = l[BOUND]
always = l[ALWAYS]

--@ resume
parts = l[PARTS]
debt = l[DEBT]
part = l[DEBT_PART]
after = l[AFTER]
afterPart = l[AFTER_PART]
special = l[SPECIAL]
changed = l[CHANGED]

--@ keep
l[DEBT] = debt
l[DEBT_PART] = part
l[AFTER] = after
l[AFTER_PART] = afterPart
l[SPECIAL] = special
l[CHANGED] = changed

--@ lone
-- A lone meter is the commonest charge, and without all that follows it takes a sixth less
-- time. If its state is not just an instant, or on an error, it is decided as the others are.
local cost, burst = ARGV[1], ARGV[2]
if burst and #KEYS == 1 and string.byte(burst) ~= 42 then
	burst = burst + 0
	local key, format, debt = KEYS[1], string.format, 0
	local value = try('GET', key)
	if value then
		debt = #value == 16 and string.find(value, '^%d+$') and value - now or burst + 1
		if debt < 0 then
			debt = 0
		end
	end
	if debt <= burst then
		local after = debt + cost
		if after > burst then
			return debt * 2
		end
		local ends = now + after
		if not try('SET', key, format('%d', ends), 'PXAT', format('%d', (ends + 999) / 1000)).err then
			return after * 2 + 1
		end
	end
	ARGV = {'1 meter ' .. ARGV[1] .. ',' .. ARGV[2] .. ',1'}
end

--@ check
if unwritten == 0 then
	local value = try('GET', key)
	special = always
	changed = false
	part = 0
	if not value then
		debt = 0
	elseif not special then
		if #value == 16 and find(value, '^%d+$') then
			debt = value - now
		else
			local tat, p
			if #value > 17 then
				tat, p = match(value, '^(%d+)%+(%d+)$')
			end
			if tat and #tat == 16 and p + 0 < parts then
				debt = tat - now
				part = p + 0
			else
				special = true
			end
		end
	end
	if special then
		rare = rare or (function()
			--@ meter.rare
		end)()
		if not l then
			--@ meter.array
		end
		hold, debt, part, changed = false, rare.read(l, value)
		if not debt then
			problem = type(value) == 'table' and value.err or NONSENSE
			break
		end
	elseif debt < 0 then
		debt, part = 0, 0
	elseif debt >= burst and (debt > burst or part > burstPart) then -- the clock stepped back
		debt, part, changed = burst, burstPart, charging
	end
elseif several then
	--@ meter.resume
end
after = debt + cost
afterPart = part + costPart
if afterPart >= parts then
	after = after + 1
	afterPart = afterPart - parts
end
fits = after < bound or (after == bound and afterPart <= burstPart)
if several then
	--@ meter.keep
end

--@ charge
if several then
	--@ meter.resume
end
if special then
	local ok
	ok, debt, part = pcall(rare.charge, l, key, charging, all, not banned and not fits and not l.over, changed, debt, part, after, afterPart)
	if not ok then
		problem = debt
		break
	end
else
	if all then
		debt = after
		part = afterPart
		changed = true
	end
	if hold then
		if several then
			--@ meter.keep
		end
	elseif changed then
		local ends = now + debt
		local state
		if part > 0 then
			state = format('%d+%d', ends, part)
			ends = ends + 1
		else
			state = format('%d', ends)
		end
		local done = try('SET', key, state, 'PXAT', format('%d', (ends + 999) / 1000))
		if done.err then
			problem = done
			break
		end
	end
end
last = last + 1
reply[last] = debt * 2 + (fits and 1 or 0)
if parts > 1 then
	last = last + 1
	reply[last] = part
end
if mode == DATED then
	last = last + 1
	reply[last] = special and l.refunds ~= '' and match(l.refunds, ' (%d+) %d+%+?%d*$') + 0 or 0
end

--@ rare
-- A meter that has turns, refunds or Initial, may get turns, or is surcharged.

--@ meter.text

-- above reports whether a debt is above the burst.
local function above(l, debt, part)
	return debt > l[BURST] or (debt == l[BURST] and part > l[BURST_PART])
end

local rare = {}

-- read returns the debt now, and whether the state has changed. If the clock stepped back, a
-- debt is cut, but with reserved turns the state moves back with the clock.
function rare.read(l, value)
	l.exists, l.turns, l.forget, l.refunds = false, false, false, ''
	if not value then
		return l.start or 0, l.startPart or 0, false
	end
	local tat, part, turns, forget, refunds
	if type(value) == 'string' then
		tat, part, turns, forget, refunds = parse(value, l[PARTS])
	end
	if not tat or (forget and true or false) ~= (l.memory and true or false) then
		return
	end
	if forget and now >= forget then
		return l.start, l.startPart, false
	end
	local changed = false
	if turns and turns > now then
		local back = turns - now
		tat, forget, turns, changed = tat - back, forget and forget - back, now, true
	end
	local debt = tat - now
	if debt < 0 then
		debt, part = 0, 0
	elseif not turns and above(l, debt, part) then
		debt, part, changed = l[BURST], l[BURST_PART], true
	end
	if refunds ~= '' and (changed or match(refunds, '%d+') + 0 <= now) then
		refunds = ''
	end
	if forget and forget > now + l.memory and not turns then -- the clock stepped back, or another limiter has a longer ForgetAfter
		forget, changed = now + l.memory, true
	end
	l.exists, l.turns, l.forget, l.refunds = true, turns, forget, refunds
	return debt, part, changed
end

-- charge charges the state, or starts a bucket that refuses its first action.
function rare.charge(l, key, charging, all, refused, changed, debt, part, after, afterPart)
	if all then
		if l.forced and above(l, after, afterPart) then -- charge what there is room for
			if not above(l, debt, part) then
				debt, part = l[BURST], l[BURST_PART]
			end
		else
			debt, part = after, afterPart
		end
		l.turns, l.forget, changed = false, l.memory and now + l.memory, true
		if above(l, debt, part) then
			l.turns = now
			l.forget = l.forget and l.forget + debt - l[BURST] + (part > l[BURST_PART] and 1 or 0)
		end
	elseif refused and l.memory and not l.exists then
		l.forget, changed = now + l.memory, true
	end
	if changed and charging then
		write(key, now + debt, part, l.turns, l.forget, l.refunds)
	end
	return debt, part
end

return rare
