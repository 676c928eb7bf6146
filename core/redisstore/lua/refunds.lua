-- What a meter remembers of refunds, so that no time is given back twice. See meter.lua.

local format = string.format

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

return {less = less, add = add}
