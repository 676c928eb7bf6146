-- What a meter's state may have after its tat, and what it remembers of refunds so that no time
-- is given back twice. See meter.lua.

local format, match = string.format, string.match
local nonsense = require('state').nonsense

local function exceeds(whole, part, other, otherPart)
	return whole > other or whole == other and part > otherPart
end

-- parse reads a state that is more than a tat.
local function parse(l, value, now)
	local tat, plus, part, at, turns, blank, forget, refunds = match(value, '^(%d+)(%+?)(%d*)([@=]?)(%d*)( ?)(%d*)(.*)$')
	if not tat or (plus == '') ~= (part == '') or (at == '') ~= (turns == '') or (blank == '') ~= (forget == '')
		or #tat > 16 or #turns > 16 or #forget > 16 then
		error(nonsense, 0)
	end
	if refunds ~= '' then
		local till, number = match(refunds, '^!(%d+)[ %d+]* (%d+) %d+%+?%d*$')
		if not till or #till > 16 or #number > 16 then error(nonsense, 0) end
	end
	l.debt, l.part, l.turns, l.forget = tat - now, tonumber(part) or 0, tonumber(turns), tonumber(forget)
	l.owed = at == '='
	l.refunds, l.more = refunds ~= '' and refunds, true
	if l.part >= l.parts then error(nonsense, 0) end
end

-- settle brings what is more than a tat to now.
local function settle(l, now)
	local back = (l.turns or now) - now
	if l.exists and (not l.forget) ~= (not l.keep) then
		error(nonsense, 0)
	elseif not l.exists or l.forget and now >= l.forget then
		l.debt, l.part, l.exists, l.turns, l.forget, l.refunds = l.start or 0, l.startPart or 0, false, nil, nil, nil
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

local function less(whole, part, other, otherPart, parts)
	whole, part = whole - other, part - otherPart
	if part < 0 then return whole - 1, part + parts end
	return whole, part
end

local most = 8 -- refunds that a state remembers

-- add adds the refund last of a span to those before. The charge knew of the refunds up to
-- known. A refund replaces earlier ones with no lower tat, and all earlier ones if its tat is
-- past. If there are too many, the two with the nearest tats become one, with the lower tat.
local function add(refunds, last, whole, part, parts, known, now)
	last.number = math.max(#refunds > 0 and refunds[#refunds].number + 1 or 1, now)
	refunds[#refunds + 1] = last
	local kept = {}
	for _, r in ipairs(refunds) do
		if r ~= last and r.number > known then
			r.tat, r.part = less(r.tat, r.part, whole, part, parts)
		end
		local top = kept[#kept]
		while top and (r.tat < top.tat or r.tat == top.tat and r.part <= top.part) do
			kept[#kept] = nil
			top = kept[#kept]
		end
		if r.tat < now then
			kept = {}
		end
		kept[#kept + 1] = r
	end
	if #kept > most then
		local nearest = 1
		for i = 2, #kept - 1 do
			if kept[i + 1].tat - kept[i].tat < kept[nearest + 1].tat - kept[nearest].tat then
				nearest = i
			end
		end
		kept[nearest].number = kept[nearest + 1].number
		table.remove(kept, nearest + 1)
	end
	local text = ''
	for _, r in ipairs(kept) do
		text = text .. format(' %d %d', r.number, r.tat) .. (r.part > 0 and format('+%d', r.part) or '')
	end
	return text
end

return {exceeds = exceeds, parse = parse, settle = settle, less = less, add = add}
