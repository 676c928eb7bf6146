-- meter    cost, burst; if the emission interval has a fraction also parts, and how many
--          of these the cost and the burst have besides
-- initial  cost, burst, parts, their parts; the debt of an unseen bucket, its parts; how
--          long the bucket is remembered: for a TokenBucket with Initial
-- reply    whether it has room, and twice the time until it is whole; parts of it, if
--          there are parts; in mode 2 the number of the last refund, or 0
--
-- A state is "tat": the instant at which the debt is gone, in GCRA the theoretical arrival
-- time. Behind it may stand
--   "+part"   and so many parts of a microsecond
--   "@at"     when a caller that waits has last reserved a turn
--   " at"     when the last action was admitted, of a bucket with Initial
--   "!until"  and refunds, " number tat", oldest first; see refund.lua

--@ state
-- parse reads a state. It returns nothing if value is none.
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
	local used, refunds = match(rest, '^ (%d+)(.*)$')
	rest = used and refunds or rest
	if turns and #turns > 16 or used and #used > 16 then
		return
	end
	if rest ~= '' then
		local till, number = match(rest, '^!(%d+)[ %d+]* (%d+) %d+%+?%d*$')
		if not till or #till > 16 or #number > 16 then
			return
		end
	end
	return tat + 0, part and part + 0 or 0, turns and turns + 0, used and used + 0, rest
end

-- write keeps a state until it is whole, or forgotten.
local function write(key, tat, part, turns, used, memory, refunds)
	local state, ends = format('%d', tat), tat
	if part > 0 then
		state, ends = format('%d+%d', tat, part), tat + 1
	end
	if turns then
		state = state .. format('@%d', turns)
	end
	if refunds ~= '' then
		ends = math.max(ends, match(refunds, '%d+') + 0)
	end
	if used then
		state, ends = state .. format(' %d', used), used + memory
	end
	if ends <= now then
		return call('DEL', key)
	end
	return call('SET', key, state .. refunds, 'PXAT', format('%d', floor((ends + 999) / 1000)))
end

--@ fields
local PARTS, COST, COST_PART, BURST, BURST_PART, BOUND = 5, 6, 7, 8, 9, 10
local DEBT, DEBT_PART, AFTER, AFTER_PART, SPECIAL = 11, 12, 13, 14, 15 -- SPECIAL: it needs the rare methods

--@ parse
l = {
	METER, shadow ~= '', false, false, c == '' and 1 or c + 0, a + 0, d == '' and 0 or d + 0, b + 0, e == '' and 0 or e + 0,
	b + 0, 0, 0, 0, 0, false,
}
if kind == 'initial' or ahead > 0 or forced then
	l.always, l.forced, l.memory = true, forced, false
	if kind == 'initial' then
		local start, startPart, memory = match(rest, '(%d+),(%d+),(%d+)')
		l.start, l.startPart, l.memory = start + 0, startPart + 0, memory + 0
	end
	l.over = l[COST] > l[BURST] or (l[COST] == l[BURST] and l[COST_PART] > l[BURST_PART])
	l[BOUND] = forced and 2 ^ 53 or l.over and -1 or l[BURST] + ahead
end

--@ check
local parts, debt, part = l[PARTS], l[DEBT], l[DEBT_PART]
if not again then
	local value, special = try('GET', KEYS[key + k]), l.always
	debt, part = 0, 0
	if value and not special then
		if #value == 16 and find(value, '^%d+$') then
			debt = value - now
		else
			local tat, p
			if #value > 17 then
				tat, p = match(value, '^(%d+)%+(%d+)$')
			end
			if tat and #tat == 16 and p + 0 < parts then
				debt, part = tat - now, p + 0
			else
				special = true
			end
		end
	end
	if special then
		rare = rare or (function()
			--@ meter.rare
		end)()
		equal, debt, part, changed = false, rare.read(l, value)
		if not debt then
			problem = type(value) == 'table' and value.err or NONSENSE
			break
		end
	elseif debt < 0 then
		debt, part = 0, 0
	elseif debt >= l[BURST] and (debt > l[BURST] or part > l[BURST_PART]) then -- the clock stepped back
		debt, part, changed = l[BURST], l[BURST_PART], true
	end
	l[DEBT], l[DEBT_PART], l[CHANGED], l[SPECIAL] = debt, part, changed, special
end
local after, afterPart, bound = debt + l[COST], part + l[COST_PART], l[BOUND]
if afterPart >= parts then
	after, afterPart = after + 1, afterPart - parts
end
fits = after < bound or (after == bound and afterPart <= l[BURST_PART])
l[AFTER], l[AFTER_PART] = after, afterPart

--@ charge
local debt, part, special = l[DEBT], l[DEBT_PART], l[SPECIAL]
if special then
	local ok
	ok, debt, part = pcall(rare.charge, l, KEYS[key + k], charging, all, not banned and not fits and not l.over)
	if not ok then
		problem = debt
		break
	end
else
	if all then
		debt, part = l[AFTER], l[AFTER_PART]
		l[DEBT], l[DEBT_PART], l[CHANGED] = debt, part, true
	end
	if charging and not equal and l[CHANGED] then
		local tat = now + debt
		local state, ends = format('%d', tat), tat
		if part > 0 then
			state, ends = format('%d+%d', tat, part), tat + 1
		end
		done = try('SET', KEYS[key + k], state, 'PXAT', format('%d', floor((ends + 999) / 1000)))
	end
end
last = last + 1
reply[last] = debt * 2 + (fits and 1 or 0)
if l[PARTS] > 1 then
	last = last + 1
	reply[last] = part
end
if dated then
	last = last + 1
	reply[last] = special and l.refunds ~= '' and match(l.refunds, ' (%d+) %d+%+?%d*$') + 0 or 0
end

--@ rare
-- A meter that has turns, refunds or a memory, or may come to have them.

--@ meter.state

-- above is whether a debt is above the burst.
local function above(l, debt, part)
	return debt > l[BURST] or (debt == l[BURST] and part > l[BURST_PART])
end

local rare = {}

-- read returns the debt of now, and whether it had to be cut. Turns that are reserved stay
-- as far off as they were when the clock steps back.
function rare.read(l, value)
	l.exists, l.turns, l.used, l.refunds = false, false, false, ''
	if not value then
		return l.start or 0, l.startPart or 0, false
	end
	local tat, part, turns, used, refunds
	if type(value) == 'string' then
		tat, part, turns, used, refunds = parse(value, l[PARTS])
	end
	if not tat or (used and true or false) ~= (l.memory and true or false) then
		return
	end
	if used and now - used >= l.memory then
		return l.start, l.startPart, false
	end
	local changed = false
	if turns and turns > now then
		local back = turns - now
		tat, used, turns, changed = tat - back, used and used - back, now, true
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
	if used and used > now and not turns then
		used, changed = now, true
	end
	l.exists, l.turns, l.used, l.refunds = true, turns, used, refunds
	return debt, part, changed
end

-- charge moves the state, or starts a bucket that refuses its first action.
function rare.charge(l, key, charging, all, refused)
	local debt, part, changed = l[DEBT], l[DEBT_PART], l[CHANGED]
	if all then
		if l.forced and above(l, l[AFTER], l[AFTER_PART]) then -- as much as there is room for
			if not above(l, debt, part) then
				debt, part = l[BURST], l[BURST_PART]
			end
		else
			debt, part = l[AFTER], l[AFTER_PART]
		end
		l.turns, l.used, changed = false, now, true
		if above(l, debt, part) then
			l.turns, l.used = now, now + debt - l[BURST] + (part > l[BURST_PART] and 1 or 0)
		end
	elseif refused and l.memory and not l.exists then
		l.used, changed = now, true
	end
	if changed and charging then
		write(key, now + debt, part, l.turns, l.memory and l.used, l.memory, l.refunds)
	end
	return debt, part
end

return rare
