-- ban    the length of a ban by hand, or 0; refusals, within, the time until all is forgotten;
--        the lengths of the bans
-- reply  1 if there is no ban, plus twice the refusals; the time until all is forgotten; the
--        time until the ban ends; the level: bans in a row
--
-- A state is "end last until level" and the refusals. end is when all is forgotten, last the
-- last refusal or ban, and until the end of the last ban.

--@ parse
l = {
	OTHER, false, false, byHand = a + 0, refusals = b + 0, within = c + 0, forget = false, lengths = {},
	bans = true, check = bans.check, charge = bans.charge, charging = mode ~= PEEK,
}
for length in string.gmatch(rest, '%d+') do
	if l.forget then
		l.lengths[#l.lengths + 1] = length + 0
	else
		l.forget = length + 0
	end
end

--@ methods
--@ common.text

local max, min = math.max, math.min
local ban = {}

function ban.check(l, key)
	l.last, l.stop, l.level, l.marks, l.ahead = 0, 0, 0, {}, 0
	local value = call('GET', key)
	if value then
		local ends, last, stop, level, marks = match(value, '^(%d+) (%d+) (%d+) (%d+)([ %d]*)$')
		if not ends or #ends > 16 or #last > 16 or #stop > 16 or #level > 9 then
			error(NONSENSE)
		end
		if ends + 0 > now then
			l.last, l.stop, l.level = last + 0, stop + 0, level + 0
			l.ahead = max(0, l.last - now) -- the clock stepped back
			if now + l.ahead >= max(l.last, l.stop) + l.forget then
				l.level = 0
			end
			for mark in string.gmatch(marks, '%d+') do
				if #mark > 16 then
					error(NONSENSE)
				end
				if mark + l.within > now + l.ahead then
					l.marks[#l.marks + 1] = mark + 0
				end
			end
		end
	end
	return l.byHand > 0 and l.charging or l.stop - l.ahead <= now
end

-- forgotten is the instant from which the state need not be kept.
local function forgotten(l)
	local ends = max(l.last, l.stop) + (l.level > 0 and l.forget or 0)
	return #l.marks > 0 and max(ends, l.last + l.within) or ends
end

function ban.charge(l, key, charging, all, _, refused)
	local length = all and l.byHand or 0
	if charging and (length > 0 or refused or l.ahead > 0) then
		l.last, l.stop = l.last - l.ahead, max(0, l.stop - l.ahead)
		for i = 1, #l.marks do
			l.marks[i] = l.marks[i] - l.ahead
		end
		l.ahead = 0
		if refused then
			l.last = now
			l.marks[#l.marks + 1] = now
			if #l.marks >= l.refusals then
				l.level = l.level + 1
				length = l.lengths[min(l.level, #l.lengths)]
			end
		end
		if length > 0 then
			l.last, l.stop, l.marks = now, now + length, {}
		end
		local ends = forgotten(l)
		local value = format('%d %d %d %d', ends, l.last, l.stop, l.level)
		for i = 1, #l.marks do
			value = value .. ' ' .. int(l.marks[i])
		end
		call('SET', key, value, 'PXAT', expiry(ends))
	end
	local at = now + l.ahead
	return #l.marks * 2 + (l[FITS] and 1 or 0), max(0, forgotten(l) - at), max(0, l.stop - at), l.level
end

return ban
