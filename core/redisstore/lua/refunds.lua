-- The refund of a meter. A meter remembers its refunds, because time that was given back must not be
-- given back again. In the text of a state, the refunds are everything from the "!" on. meter.lua has the format. The tat is the
-- instant at which the debt of the meter ends.
--
-- The functions valid, till and last read this text without parsing it into a list. If a meter has
-- no refunds, the text is nil or false.
--
-- The function amend does what amend of meter.go does. In Go these functions are methods:
--
--   limit               limit of refunds
--   add                 add, push and merge of refunds
--   sub, exceeds, ceil  of Span

local format, match = string.format, string.match

local maxRefunds = 8 -- how many refunds a state remembers

-- sub returns a - b.
local function sub(a, b, parts)
	local whole, part = a.whole - b.whole, a.part - b.part
	if part < 0 then
		whole, part = whole - 1, part + parts
	end
	return {whole = whole, part = part}
end

local function exceeds(a, b) return a.whole > b.whole or a.whole == b.whole and a.part > b.part end

-- ceil returns a span in microseconds, rounded up.
local function ceil(a) return a.part > 0 and a.whole + 1 or a.whole end

local function valid(text)
	local till, number = match(text, '^!(%d+)[ %d+]* (%d+) %d+%+?%d*$')
	return till and #till <= 16 and #number <= 16
end

-- list returns the refunds in a text.
local function list(text)
	local refunds = {}
	for number, tat, part in string.gmatch(text or '', ' (%d+) (%d+)%+?(%d*)') do
		if #number > 16 or #tat > 16 then error(require('state').nonsense, 0) end
		refunds[#refunds + 1] = {number = number + 0, at = {whole = tat + 0, part = tonumber(part) or 0}}
	end
	return refunds
end

-- The function till returns the instant until which the refunds are remembered. By then everything
-- that was charged before the last refund has drained. A refund after that instant starts a new
-- list, and its number is higher than the numbers in this list.
local function till(text) return text and match(text, '%d+') + 0 or 0 end

-- last returns the number of the last refund, or 0 if there is none.
local function last(text) return text and match(text, ' (%d+) %d+%+?%d*$') + 0 or 0 end

-- limit returns the tat up to which a charge may be given back. The argument known is the number of
-- the last refund before the charge. The argument after is the tat just after the charge.
local function limit(text, after, known)
	for _, r in ipairs(list(text)) do
		if r.number > known then -- the first such refund has the least tat
			return exceeds(after, r.at) and r.at or after
		end
	end
	return after
end

-- add adds a refund at the instant now, and returns the new text. The argument gave is the span
-- that the refund gave back. The arguments before and at are the tat just before and just after the
-- refund. The argument known is the number of the last refund before the charge.
--
-- If an earlier refund has the same tat as the new refund or a higher tat, the new refund replaces
-- it. If the tat of the new refund is past, the new refund replaces all earlier refunds. If there
-- are then nine refunds, the two with the nearest tats become one, which has the lower tat.
local function add(text, at, gave, before, known, parts, now)
	local kept = {}
	local function push(number, at)
		while #kept > 0 and not exceeds(at, kept[#kept].at) do
			kept[#kept] = nil
		end
		if at.whole < now then
			kept = {}
		end
		kept[#kept + 1] = {number = number, at = at}
	end
	for _, r in ipairs(list(text)) do
		push(r.number, r.number > known and sub(r.at, gave, parts) or r.at)
	end
	local number = math.max(last(text) + 1, now)
	push(number, at)
	if #kept > maxRefunds then
		local nearest = 1
		for i = 2, #kept - 1 do
			if kept[i + 1].at.whole - kept[i].at.whole < kept[nearest + 1].at.whole - kept[nearest].at.whole then
				nearest = i
			end
		end
		kept[nearest].number = kept[nearest + 1].number
		table.remove(kept, nearest + 1)
	end
	local new = format('!%d', math.max(ceil(before), till(text), number + 1))
	for _, r in ipairs(kept) do
		new = new .. format(' %d %d', r.number, r.at.whole) .. (r.at.part > 0 and format('+%d', r.at.part) or '')
	end
	return new
end

local function amend(r, now, t, give, s)
	local debt, at = {whole = s.debt, part = s.part}, {whole = now + s.debt, part = s.part}
	local left = limit(s.refunds, t.after, t.known)
	if exceeds(left, at) then -- the debt was cut, for example when the clock stepped back
		left = at
	end
	left = {whole = left.whole - now, part = left.part}
	if left.whole < 0 or ceil(left) == 0 or ceil(at) <= now then
		return false
	elseif s.turns and not s.owed and (exceeds(at, t.after) or exceeds(t.after, at)) and exceeds(debt, {whole = r.burst, part = r.burstPart}) then
		return false -- a later turn would come too early
	end
	if exceeds(give, left) then
		give = left
	end
	local before = at
	at = sub(at, give, r.parts)
	s.refunds = add(s.refunds, at, give, before, t.known, r.parts, now)
	s.debt, s.part, s.more = at.whole - now, at.part, true
	return true
end

return {valid = valid, till = till, last = last, amend = amend}
