-- Buckets and funnels. A span of time is two numbers: whole microseconds, and a fraction of a
-- microsecond in parts. The rule's field parts says how many parts make a microsecond.

-- Fields and functions have the names of meter.go, with these differences:
--
--   burst         the whole microseconds of Burst; burstPart is the fraction, in parts
--   debt, part    the whole microseconds and the fraction of the span that is owed: At, less the
--                 instant of the run. It is negative if the debt has drained
--   turns, owed   Turns. If that is negative in Go, turns is positive and owed is true
--   keep, forget  ForgetAfter, and the instant at which the state is forgotten; false if there is
--                 no ForgetAfter
--   more          whether the state may have fields besides the tat. If not, turns, owed, forget and refunds
--                 are false, and exists is not used
--   exists        whether there is a state that is not forgotten
--   after         the debt after a charge; afterPart is its fraction. check computes both
--   correct       does not cut a debt above the quota. check does that, if turns is false

-- These numbers are sent and replied:
--
--   arguments  the whole microseconds of cost and of burst. If parts > 1 or the bucket has
--              Initial, three numbers follow: parts, the part of cost and the part of burst. If
--              the bucket has Initial, the span of its first debt and ForgetAfter follow
--   reply      twice the whole microseconds of the debt, plus 1 if the limit has room. If
--              parts > 1, the part of the debt follows. If the charge may be amended, the number of
--              the last refund follows, or 0 if there is none
--   amend      the span to give back; parts; the tat just after the charge, as a span; the span of
--              burst; the number of the last refund before the charge, or 0 if there was none

-- A state is text. It begins with the tat: the instant at which the debt ends, which GCRA calls the
-- theoretical arrival time. These may follow, in this order:
--
--   "+part"   the part of the tat
--   "@at"     at is the instant of the last charge, if it left a debt above the quota. A turn is
--             reserved for a waiting caller
--   "=at"     at is the same instant, but no turn is reserved
--   " at"     at is the instant at which the state of a bucket with Initial is forgotten
--   "!until"  there were refunds. until is the instant at which all that was charged before them
--             has drained. For each refund that still matters, oldest first, its number and the tat
--             after it follow: " number tat", or " number tat+part". The numbers rise

local call, find, floor, format = redis.call, string.find, math.floor, string.format
local save -- below

local mostDebt = 4503599627370495 -- 2^52 - 1: the largest debt that a reply can have

local function args(_, cost, burst, parts, rest)
	local r, costPart = {burst = burst + 0, burstPart = 0, parts = 1, start = 0, startPart = 0, keep = false, shadow = false, failures = false}, 0
	if parts ~= '' then
		local first, second, start, startPart, keep = string.match(rest, '(%d+),(%d+),?(%d*),?(%d*),?(%d*)')
		costPart, r.parts, r.burstPart = first + 0, parts + 0, second + 0
		if keep ~= '' then
			r.start, r.startPart, r.keep = start + 0, startPart + 0, keep + 0
		end
	end
	return {
		debt = 0, part = 0, after = 0, afterPart = 0, fits = false, dirty = false,
		more = r.keep ~= false, exists = false, turns = false, owed = false, forget = false, refunds = false,
		rule = r, cost = cost + 0, costPart = costPart, machine = false,
	}
end

-- parse reads a state that may be more than a tat. If the state is forgotten, it counts as none.
local function parse(r, value, now, s)
	local tat, plus, part, at, turns, blank, forget, refunds = string.match(value, '^(%d+)(%+?)(%d*)([@=]?)(%d*)( ?)(%d*)(.*)$')
	if not tat or (plus == '') ~= (part == '') or (at == '') ~= (turns == '') or (blank == '') ~= (forget == '')
		or #tat > 16 or #turns > 16 or #forget > 16 or (tonumber(part) or 0) >= r.parts
		or refunds ~= '' and not require('refunds').valid(refunds) then
		error(require('state').nonsense, 0)
	end
	s.more, s.exists = true, not r.keep or forget == '' or forget + 0 > now
	if s.exists then
		s.debt, s.part, s.turns, s.owed, s.forget = tat - now, tonumber(part) or 0, tonumber(turns) or false, at == '=', tonumber(forget) or false
		s.refunds = refunds ~= '' and refunds
	end
end

local function load(r, key, now, s)
	local value = call('GET', key)
	if s.more then -- the last run may have set these
		s.more, s.exists, s.turns, s.owed, s.forget, s.refunds = r.keep and true, value and true, false, false, false, false
	end
	if value and #value == 16 and find(value, '^%d+$') then
		s.debt, s.part = value - now, 0
		return
	end
	s.debt, s.part = r.start, r.startPart
	if value then parse(r, value, now, s) end
end

-- correct corrects a state in these cases: the clock has stepped back to before the last charge
-- above the quota, no refund matters any more, or the state would be forgotten later than
-- ForgetAfter from now.
local function correct(r, now, s)
	local keep, back = r.keep, (s.turns or now) - now
	if (not s.forget) ~= (not keep) then
		error(require('state').nonsense, 0)
	elseif back > 0 then -- turns that are reserved move back with the clock
		s.debt, s.turns, s.forget, s.refunds, s.dirty = s.debt - back, now, keep and s.forget - back, false, true
	elseif s.refunds and require('refunds').till(s.refunds) <= now then
		s.refunds = false
	end
	if keep and s.forget > now + keep and not s.turns then
		s.forget, s.dirty = now + keep, true
	end
end

-- exceeds reports whether a span is longer than another span. In their main comparisons, check and
-- charge first compare whole microseconds, to save the call if the span is shorter.
local function exceeds(whole, part, than, thanPart) return whole > than or whole == than and part > thanPart end

local function check(r, now, cost, a, s)
	if s.more and s.exists then
		correct(r, now, s)
	end
	local debt, part, bound, boundPart = s.debt, s.part, r.burst, r.burstPart
	if debt < 0 then
		debt, part, s.debt, s.part = 0, 0, 0, 0
	elseif debt >= bound and exceeds(debt, part, bound, boundPart) and not s.turns then -- the clock stepped back, or a limiter with a larger quota wrote it
		debt, part = bound, boundPart
		s.debt, s.part, s.refunds, s.dirty = debt, part, false, true
	end
	debt, part = debt + cost, part + s.costPart
	if part >= r.parts then
		debt, part = debt + 1, part - r.parts
	end
	s.after, s.afterPart = debt, part
	if a.ahead > 0 and not r.shadow and not exceeds(cost, s.costPart, bound, boundPart) then -- no caller waits for a shadow limit
		bound = bound + a.ahead
	end
	return debt < bound or not exceeds(debt, part, bound, boundPart) or a.forced
end

-- forced returns the debt after a forced charge, which charges what there is room for.
local function forced(r, debt, part, a, s)
	local most, mostPart = r.burst * a.quotas, r.burstPart * a.quotas
	if mostPart >= r.parts then
		most, mostPart = most + 1, mostPart - r.parts
	end
	if most > mostDebt then
		most, mostPart = mostDebt, 0
	end
	if exceeds(debt, part, most, mostPart) then
		debt, part = most, mostPart
	end
	if exceeds(s.debt, s.part, most, mostPart) then
		debt, part = s.debt, s.part
	end
	return debt, part
end

local function charge(r, now, _, a, s)
	local debt, part, burst = s.after, s.afterPart, r.burst
	if a.forced then
		debt, part = forced(r, debt, part, a, s)
	end
	if debt >= burst and exceeds(debt, part, burst, r.burstPart) then -- above the quota
		local reserved = not a.forced or s.turns and not s.owed and exceeds(s.debt, s.part, burst, r.burstPart)
		s.turns, s.owed, s.more, s.exists = now, not reserved, true, true
		s.forget = r.keep and now + r.keep + debt - burst + (part > r.burstPart and 1 or 0)
	elseif s.more then
		s.turns, s.exists, s.forget = false, true, r.keep and now + r.keep
	end
	s.debt, s.part, s.dirty = debt, part, true
end

-- If record is set, refuse starts a bucket with Initial whose first action is refused.
local function refuse(r, now, cost, record, s)
	if record and not s.exists and not exceeds(cost, s.costPart, r.burst, r.burstPart) then
		s.forget, s.exists, s.dirty = now + r.keep, true, true
	end
end

local function read(r, _, _, s, reply, last, amendable)
	last = last + 1
	reply[last] = s.debt * 2 + (s.fits and 1 or 0)
	if r.parts > 1 then
		last = last + 1
		reply[last] = s.part
	end
	if amendable then
		last = last + 1
		reply[last] = s.refunds and require('refunds').last(s.refunds) or 0
	end
	return last
end

local function amendArgs(_, _, give, givePart, parts, after, afterPart, burst, burstPart, known)
	local r = {burst = burst, burstPart = burstPart, parts = parts, start = 0, startPart = 0, keep = false}
	return r, {after = {whole = after, part = afterPart}, known = known}, {whole = give, part = givePart}
end

local function amend(r, now, t, give, s, key)
	if s.exists and require('refunds').amend(r, now, t, give, s) then
		save(r, key, now, s)
	end
end

-- save writes the state. The key expires when the full quota is available and no refund matters any
-- more. The key of a bucket with Initial expires when the state is forgotten.
function save(_, key, now, s)
	local ends, part = now + s.debt, s.part
	local text = format('%d', ends)
	if part > 0 then
		text, ends = format('%d+%d', ends, part), ends + 1
	end
	if s.more then
		local turns, forget, refunds = s.turns, s.forget, s.refunds
		if refunds then -- at most 100 years, in case the bytes are garbled
			ends = math.max(ends, math.min(require('refunds').till(refunds), now + 3155760000000000))
		end
		ends = forget or ends
		text = text .. (turns and format(s.owed and '=%d' or '@%d', turns) or '') .. (forget and format(' %d', forget) or '') .. (refunds or '')
	end
	if ends <= now then
		call('DEL', key)
	else
		call('SET', key, text, 'PXAT', format('%d', floor((ends + 999) / 1000)))
	end
end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, amendArgs = amendArgs, amend = amend, save = save}
