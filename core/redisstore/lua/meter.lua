-- Buckets and funnels. A span of time is two numbers: whole microseconds, and a fraction of one
-- in parts, of which the rule's parts make a microsecond.
--
-- arguments  the whole of cost and of burst; parts; the part of cost and of burst; of a bucket with
--            Initial also the span of the debt that it starts with, and how long it is kept
-- reply      1 if it has room, plus twice the whole of the debt; if parts > 1, the part of the
--            debt; if the charge is dated, the number of the last refund, or 0
-- refund     the span to give back; parts; the span of the debt's end just after the charge, as
--            an instant; the span of burst; the number of the last refund before the charge
--
-- A state is "tat": the instant at which the debt ends, in GCRA the theoretical arrival time.
-- After it there may be
--   "+part"   its part
--   "@at"     the instant at which a waiting caller last reserved a turn
--   " at"     the instant at which the state is forgotten, of a bucket with Initial
--   "!until"  after a refund: the instant at which all that was charged before has drained. For
--             each refund that still matters, the oldest first, " number tat" or
--             " number tat+part" follows: a number that rises, and the debt's end after it

local call, find, format, match = redis.call, string.find, string.format, string.match
local state = require 'state'
local nonsense, expiry = state.nonsense, state.expiry
local save -- below

local function exceeds(whole, part, other, otherPart)
	return whole > other or whole == other and part > otherPart
end

local function args(list, ask, shadow)
	local cost, burst, parts, costPart, burstPart, start, startPart, keep =
		match(list, '(%d+),(%d+),(%d+),(%d+),(%d+),?(%d*),?(%d*),?(%d*)')
	cost, costPart, burst, burstPart = cost + 0, costPart + 0, burst + 0, burstPart + 0
	local over = exceeds(cost, costPart, burst, burstPart)
	return {
		cost = cost, costPart = costPart, burst = burst, burstPart = burstPart, parts = parts + 0,
		start = tonumber(start) or 0, startPart = tonumber(startPart) or 0, keep = tonumber(keep),
		forced = ask.forced, dated = ask.dated, over = over,
		bound = over and -1 or burst + (shadow and 0 or ask.ahead), -- of the debt after the charge
		exists = false, dirty = false, more = nil, debt = 0, part = 0, after = 0, afterPart = 0,
	}
end

-- parse reads a state that is more than a tat.
local function parse(l, value, now)
	local tat, plus, part, at, turns, blank, forget, refunds = match(value, '^(%d+)(%+?)(%d*)(@?)(%d*)( ?)(%d*)(.*)$')
	if not tat or (plus == '') ~= (part == '') or (at == '') ~= (turns == '') or (blank == '') ~= (forget == '')
		or #tat > 16 or #turns > 16 or #forget > 16 then
		error(nonsense, 0)
	end
	if refunds ~= '' then
		local till, number = match(refunds, '^!(%d+)[ %d+]* (%d+) %d+%+?%d*$')
		if not till or #till > 16 or #number > 16 then error(nonsense, 0) end
	end
	l.debt, l.part, l.turns, l.forget = tat - now, tonumber(part) or 0, tonumber(turns), tonumber(forget)
	l.refunds, l.more = refunds ~= '' and refunds, true
	if l.part >= l.parts then error(nonsense, 0) end
end

-- load sets debt, which is negative if it has drained, and more if the state may be more than a tat and its part.
local function load(l, key, now)
	if l.more then
		l.turns, l.forget, l.refunds = nil, nil, nil
	end
	local value = call('GET', key)
	l.exists, l.dirty, l.more = value, false, l.keep
	if value and #value == 16 and find(value, '^%d+$') then
		l.debt, l.part = value - now, 0
	elseif value then
		parse(l, value, now)
	end
end

-- settle brings what is more than a tat to now.
local function settle(l, now)
	local back = (l.turns or now) - now
	if l.exists and (not l.forget) ~= (not l.keep) then
		error(nonsense, 0)
	elseif not l.exists or l.forget and now >= l.forget then
		l.exists, l.turns, l.forget, l.refunds = false, nil, nil, nil
		return
	elseif back > 0 then -- the clock stepped back: turns that are reserved move back with it
		l.debt, l.turns, l.forget, l.refunds, l.dirty = l.debt - back, now, l.forget and l.forget - back, nil, true
	elseif l.refunds and match(l.refunds, '%d+') + 0 <= now then
		l.refunds = nil
	end
	-- The clock stepped back, or another limiter has a longer ForgetAfter.
	if l.keep and l.forget > now + l.keep and not l.turns then
		l.forget, l.dirty = now + l.keep, true
	end
end

local function check(l, now)
	if l.more then
		settle(l, now)
	end
	local debt, part, burst, burstPart = l.start, l.startPart, l.burst, l.burstPart
	if l.exists then
		debt, part = l.debt, l.part
		if debt < 0 then
			debt, part = 0, 0
		elseif debt >= burst and not l.turns and exceeds(debt, part, burst, burstPart) then -- the clock stepped back
			debt, part, l.refunds, l.dirty = burst, burstPart, nil, true
		end
	end
	local after, afterPart, bound = debt + l.cost, part + l.costPart, l.bound
	if afterPart >= l.parts then
		after, afterPart = after + 1, afterPart - l.parts
	end
	local fits = after < bound or after == bound and afterPart <= burstPart
	if not fits and l.forced then -- charge what there is room for
		fits, after, afterPart = true, burst, burstPart
		if exceeds(debt, part, burst, burstPart) then
			after, afterPart = debt, part
		end
	end
	l.debt, l.part, l.after, l.afterPart = debt, part, after, afterPart
	return fits
end

local function charge(l, now)
	local debt, part, turn = l.after, l.afterPart, 0
	l.debt, l.part, l.exists, l.dirty = debt, part, true, true
	if l.more then
		l.turns = nil
	end
	if debt >= l.burst and exceeds(debt, part, l.burst, l.burstPart) then
		l.turns, l.more = now, true
		turn = debt - l.burst + (part > l.burstPart and 1 or 0)
	end
	if l.keep then
		l.forget = now + l.keep + turn
	end
end

-- refuse starts a bucket with Initial that refuses its first action.
local function refuse(l, now, record)
	if l.keep and record and not l.fits and not l.over and not l.exists then
		l.forget, l.exists, l.dirty = now + l.keep, true, true
	end
end

local function read(l, reply, last)
	last = last + 1
	reply[last] = l.debt * 2 + (l.fits and 1 or 0)
	if l.parts > 1 then
		last = last + 1
		reply[last] = l.part
	end
	if l.dated then
		last = last + 1
		reply[last] = l.refunds and match(l.refunds, ' (%d+) %d+%+?%d*$') + 0 or 0
	end
	return last
end

local function refund(key, now, _, list)
	local n, refunds = state.numbers(list), require 'refunds'
	local l, whole, part, after, afterPart, known = {parts = n[3]}, n[1], n[2], n[4], n[5], n[8]
	load(l, key, now)
	if not l.exists then return end
	local tat, tatPart = now + l.debt, l.part
	local left, leftPart, given, later = after, afterPart, {}, false
	for number, at, rest in string.gmatch(l.refunds or '', ' (%d+) (%d+)%+?(%d*)') do
		if #number > 16 or #at > 16 then return end
		local r = {number = number + 0, tat = at + 0, part = tonumber(rest) or 0}
		given[#given + 1] = r
		if r.number > known and not later then -- the first such refund has the least tat
			later = true
			if exceeds(left, leftPart, r.tat, r.part) then
				left, leftPart = r.tat, r.part
			end
		end
	end
	if exceeds(left, leftPart, tat, tatPart) then -- the debt was cut when the clock stepped back
		left, leftPart = tat, tatPart
	end
	left = left - now
	local till = tat + (tatPart > 0 and 1 or 0)
	if till <= now or left < 0 or left == 0 and leftPart == 0 then return end
	if l.turns and (tat ~= after or tatPart ~= afterPart) and exceeds(tat - now, tatPart, n[6], n[7]) then
		return -- a later turn would come too early
	end
	if exceeds(whole, part, left, leftPart) then
		whole, part = left, leftPart
	end
	till = math.max(till, l.refunds and match(l.refunds, '%d+') + 0 or 0)
	tat, l.part = refunds.less(tat, tatPart, whole, part, l.parts)
	l.debt = tat - now
	l.more, l.refunds = true, format('!%d', till) .. refunds.add(given, {tat = tat, part = l.part}, whole, part, l.parts, known, now)
	save(l, key, now)
end

-- save writes the state. It expires when the full quota is available, or when it is forgotten.
function save(l, key, now)
	local ends, part = now + l.debt, l.part
	local text = format('%d', ends)
	if part > 0 then
		text, ends = format('%d+%d', ends, part), ends + 1
	end
	if l.more then
		local turns, forget, refunds = l.turns, l.forget, l.refunds
		if refunds then -- 100 years at most, should the bytes be garbled
			ends = math.max(ends, math.min(match(refunds, '%d+') + 0, now + 3155760000000000))
		end
		ends = forget or ends
		text = text .. (turns and format('@%d', turns) or '') .. (forget and format(' %d', forget) or '') .. (refunds or '')
	end
	if ends <= now then
		call('DEL', key)
	else
		call('SET', key, text, 'PXAT', expiry(ends))
	end
end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, refund = refund, save = save}
