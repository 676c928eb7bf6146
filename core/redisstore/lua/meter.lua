-- Buckets and funnels. A span of time is two numbers: whole microseconds, and a fraction of one
-- in parts, of which the rule's parts make a microsecond.
--
-- The fields and functions have the names of meter.go, but for these:
--
--   debt, part    At, less the instant of the run: what is owed, or negative if it has drained
--   turns, owed   Turns; owed if it is negative there
--   keep, forget  ForgetAfter, and Expires if there is a ForgetAfter; else nil
--   more          whether there may be a debt in More. Only then exists, turns, owed, forget and refunds are set
--   load          debt too: a run has one instant
--   correct       only for what is in More. check cuts the debt if it is above the quota and reserves no turn
--   check         after too, for charge
--
-- arguments  the whole of cost and of burst; if parts > 1 or the bucket has Initial, also parts and
--            the part of cost and of burst; with Initial also the span of the debt that it starts
--            with, and how long it is kept
-- reply      1 if it has room, plus twice the whole of the debt; if parts > 1, the part of the
--            debt; if the charge may be amended, the number of the last refund, or 0
-- amend      the span to give back; parts; the span of the debt's end just after the charge, as
--            an instant; the span of burst; the number of the last refund before the charge
--
-- A state is "tat": the instant at which the debt ends, in GCRA the theoretical arrival time.
-- After it there may be
--   "+part"   its part
--   "@at"     the instant of the last charge that left a debt above the quota: it reserved a turn
--             for a waiting caller
--   "=at"     the same, if no turn is reserved: the charge was one above the quota
--   " at"     the instant at which the state is forgotten, of a bucket with Initial
--   "!until"  after a refund: the instant at which all that was charged before has drained. For
--             each refund that still matters, the oldest first, " number tat" or
--             " number tat+part" follows: a number that rises, and the debt's end after it

local call, find, floor, format = redis.call, string.find, math.floor, string.format
local save -- below

local mostDebt = 4503599627370495 -- 2^52 - 1: what a reply can hold

local function args(ask, _, shadow, cost, burst, parts, rest)
	local l = {
		cost = cost + 0, costPart = 0, burst = burst + 0, burstPart = 0, parts = 1,
		debt = 0, after = 0, afterPart = 0, bound = -1,
	}
	if parts ~= '' then
		local costPart, burstPart, start, startPart, keep = string.match(rest, '(%d+),(%d+),?(%d*),?(%d*),?(%d*)')
		l.parts, l.costPart, l.burstPart = parts + 0, costPart + 0, burstPart + 0
		if keep ~= '' then
			l.start, l.startPart, l.keep, l.more = start + 0, startPart + 0, keep + 0, true
		end
	end
	-- bound is how far a charge may bring the debt. It is negative if the cost never fits.
	if l.cost < l.burst or l.cost == l.burst and l.costPart <= l.burstPart then
		l.bound = l.burst + (shadow and 0 or ask.ahead)
	end
	if ask.forced then
		l.forced, l.most, l.mostPart = true, l.burst, l.burstPart
	end
	if ask.mode == 'o' then -- the most debt is two quotas
		l.most, l.mostPart = l.burst * 2, l.burstPart * 2
		if l.mostPart >= l.parts then
			l.most, l.mostPart = l.most + 1, l.mostPart - l.parts
		end
		if l.most > mostDebt then
			l.most, l.mostPart = mostDebt, 0
		end
	end
	if ask.mode == 'r' then l.amendable = true end
	return l
end

-- parse reads a state that may be more than a tat. One that is forgotten is none.
local function parse(l, value, now)
	local tat, plus, part, at, turns, blank, forget, refunds = string.match(value, '^(%d+)(%+?)(%d*)([@=]?)(%d*)( ?)(%d*)(.*)$')
	if not tat or (plus == '') ~= (part == '') or (at == '') ~= (turns == '') or (blank == '') ~= (forget == '')
		or #tat > 16 or #turns > 16 or #forget > 16 or (tonumber(part) or 0) >= l.parts
		or refunds ~= '' and not require('refunds').valid(refunds) then
		error(require('state').nonsense, 0)
	end
	l.more, l.exists = true, not l.keep or forget == '' or forget + 0 > now
	if l.exists then
		l.debt, l.part, l.turns, l.owed, l.forget = tat - now, tonumber(part) or 0, tonumber(turns), at == '=', tonumber(forget)
		l.refunds = refunds ~= '' and refunds or nil
	end
end

local function load(l, key, now)
	local value = call('GET', key)
	if l.more then -- of the last state that it read
		l.more, l.exists, l.turns, l.owed, l.forget, l.refunds = l.keep ~= nil, value and true, nil, nil, nil, nil
	end
	if value and #value == 16 and find(value, '^%d+$') then
		l.debt, l.part = value - now, 0
		return
	end
	l.debt, l.part = l.start or 0, l.startPart or 0
	if value then parse(l, value, now) end
end

-- correct brings a state to now if the clock stepped back, or if another limiter has a longer ForgetAfter.
local function correct(l, now)
	local keep, back = l.keep, (l.turns or now) - now
	if (not l.forget) ~= (not keep) then
		error(require('state').nonsense, 0)
	elseif back > 0 then -- turns that are reserved move back with the clock
		l.debt, l.turns, l.forget, l.refunds, l.dirty = l.debt - back, now, keep and l.forget - back, nil, true
	elseif l.refunds and require('refunds').till(l.refunds) <= now then
		l.refunds = nil
	end
	if keep and l.forget > now + keep and not l.turns then
		l.forget, l.dirty = now + keep, true
	end
end

local function check(l, now)
	if l.more and l.exists then
		correct(l, now)
	end
	local debt, part, burst = l.debt, l.part, l.burst
	if debt < 0 then
		debt, part, l.debt, l.part = 0, 0, 0, 0
	elseif debt >= burst and (debt > burst or part > l.burstPart) and not l.turns then -- the clock stepped back
		debt, part = burst, l.burstPart
		l.debt, l.part, l.refunds, l.dirty = debt, part, nil, true
	end
	local after, afterPart, bound = debt + l.cost, part + l.costPart, l.bound
	if afterPart >= l.parts then
		after, afterPart = after + 1, afterPart - l.parts
	end
	local fits = after < bound or after == bound and afterPart <= l.burstPart
	if not fits and l.forced then -- charge what there is room for
		local most, mostPart = l.most, l.mostPart
		fits = true
		if after > most or after == most and afterPart > mostPart then
			after, afterPart = most, mostPart
		end
		if debt > most or debt == most and part > mostPart then
			after, afterPart = debt, part
		end
	end
	l.after, l.afterPart = after, afterPart
	return fits
end

local function charge(l, now)
	local debt, part, burst = l.after, l.afterPart, l.burst
	if debt >= burst and (debt > burst or part > l.burstPart) then -- above the quota
		local reserved = not l.forced or l.turns and not l.owed and (l.debt > burst or l.debt == burst and l.part > l.burstPart)
		l.turns, l.owed, l.more, l.exists = now, not reserved, true, true
		l.forget = l.keep and now + l.keep + debt - burst + (part > l.burstPart and 1 or 0)
	elseif l.more then
		l.turns, l.exists, l.forget = nil, true, l.keep and now + l.keep
	end
	l.debt, l.part, l.dirty = debt, part, true
end

-- refuse starts a bucket with Initial that refuses its first action.
local function refuse(l, now, record)
	if l.keep and record and not l.fits and l.bound >= 0 and not l.exists then
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
	if l.amendable then
		last = last + 1
		reply[last] = l.refunds and require('refunds').last(l.refunds) or 0
	end
	return last
end

local function amend(key, now, _, list)
	local refunds, span = require 'refunds', require 'span'
	local state = require 'state'
	local giveWhole, givePart, parts, afterWhole, afterPart, burstWhole, burstPart, known = state.unpack(state.numbers(list))
	local l = {parts = parts, more = true}
	load(l, key, now)
	if not l.exists then return end
	local give, after = {whole = giveWhole, part = givePart}, {whole = afterWhole, part = afterPart}
	local burst = {whole = burstWhole, part = burstPart}
	local debt, at = {whole = l.debt, part = l.part}, {whole = now + l.debt, part = l.part}
	local left = refunds.limit(l.refunds, after, known)
	if span.exceeds(left, at) then -- the debt was cut when the clock stepped back
		left = at
	end
	left = {whole = left.whole - now, part = left.part}
	if left.whole < 0 or span.ceil(left) == 0 or span.ceil(at) <= now then
		return
	elseif l.turns and not l.owed and (span.exceeds(at, after) or span.exceeds(after, at)) and span.exceeds(debt, burst) then
		return -- a later turn would come too early
	end
	if span.exceeds(give, left) then
		give = left
	end
	local before = at
	at = span.sub(at, give, parts)
	l.refunds = refunds.add(l.refunds, at, give, before, known, parts, now)
	l.debt, l.part, l.more = at.whole - now, at.part, true
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
			ends = math.max(ends, math.min(require('refunds').till(refunds), now + 3155760000000000))
		end
		ends = forget or ends
		text = text .. (turns and format(l.owed and '=%d' or '@%d', turns) or '') .. (forget and format(' %d', forget) or '') .. (refunds or '')
	end
	if ends <= now then
		call('DEL', key)
	else
		call('SET', key, text, 'PXAT', format('%d', floor((ends + 999) / 1000)))
	end
end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, amend = amend, save = save}
