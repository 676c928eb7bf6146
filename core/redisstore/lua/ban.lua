-- The ban policy.
--
-- arguments  the length of a ban by hand, or 0; refusals, or 0 if none leads to a ban; within; the
--            time until all is forgotten; the lengths of the bans
-- reply      1 if there is no ban, plus twice the refusals; the time until all is forgotten; the
--            time until the ban ends; the level: bans in a row
--
-- A state is "gone last ends level" and " mark" for each refusal since the last ban. gone is when all is
-- forgotten, last the last refusal or ban, and ends the end of the last ban.
--
-- In ban.go ends is Until, which is a word of Lua, and marks are Refusals. check removes here what prune removes
-- there.

local call, format, match, max = redis.call, string.format, string.match, math.max
local state = require 'state'
local nonsense, expiry, unpack = state.nonsense, state.expiry, state.unpack

local function args(ask, _, _, byHand, refusals, within, rest)
	local n = state.numbers(rest)
	return {
		bans = true, byHand = byHand + 0, always = byHand ~= '0' and ask.mode ~= 'p',
		refusals = refusals + 0, within = within + 0, forget = n[1], lengths = {unpack(n, 2)},
	}
end

local function load(l, key, now)
	l.last, l.ends, l.level, l.marks, l.dirty = 0, 0, 0, {}, false
	local value = call('GET', key)
	if not value then return end
	local gone, last, ends, level, marks = match(value, '^(%d+) (%d+) (%d+) (%d+)([ %d]*)$')
	if not gone or #gone > 16 or #last > 16 or #ends > 16 or #level > 9 then error(nonsense, 0) end
	if gone + 0 <= now then return end
	l.last, l.ends, l.level = last + 0, ends + 0, level + 0
	for mark in string.gmatch(marks, '%d+') do
		if #mark > 16 then error(nonsense, 0) end
		l.marks[#l.marks + 1] = mark + 0
	end
end

-- check removes what no longer counts. behind is how far a clock that stepped
-- back is behind the last refusal or ban.
local function check(l, now)
	l.behind = max(0, l.last - now)
	local at, live = now + l.behind, {}
	if at >= max(l.last, l.ends) + l.forget then
		l.level = 0
	end
	for _, mark in ipairs(l.marks) do
		if mark + l.within > at then
			live[#live + 1] = mark
		end
	end
	l.marks = live
	return l.always or l.ends - l.behind <= now
end

-- shift moves the state back to a clock that stepped back.
local function shift(l)
	if l.behind > 0 then
		l.last, l.ends, l.dirty = l.last - l.behind, max(0, l.ends - l.behind), true
		for i = 1, #l.marks do
			l.marks[i] = l.marks[i] - l.behind
		end
		l.behind = 0
	end
end

local function ban(l, now, length)
	l.last, l.ends, l.marks, l.dirty = now, now + length, {}, true
end

local function charge(l, now)
	shift(l)
	if l.byHand > 0 then
		ban(l, now, l.byHand)
	end
end

local function refuse(l, now, record, patient)
	shift(l)
	if record and not patient and l.refusals > 0 then
		l.last, l.marks[#l.marks + 1], l.dirty = now, now, true
		if #l.marks >= l.refusals then
			l.level = l.level + 1
			ban(l, now, l.lengths[math.min(l.level, #l.lengths)])
		end
	end
end

-- forgotten is the instant from which the state need not be kept.
local function forgotten(l)
	local ends = max(l.last, l.ends) + (l.level > 0 and l.forget or 0)
	return #l.marks > 0 and max(ends, l.last + l.within) or ends
end

local function read(l, reply, last, now)
	local at = now + l.behind
	reply[last + 1] = #l.marks * 2 + (l.fits and 1 or 0)
	reply[last + 2] = max(0, forgotten(l) - at)
	reply[last + 3] = max(0, l.ends - at)
	reply[last + 4] = l.level
	return last + 4
end

-- amend does nothing: a ban policy charges nothing.
local function amend() end

local function save(l, key)
	local gone = forgotten(l)
	local text = format('%d %d %d %d', gone, l.last, l.ends, l.level)
	for _, mark in ipairs(l.marks) do
		text = text .. format(' %d', mark)
	end
	call('SET', key, text, 'PXAT', expiry(gone))
end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, amend = amend, save = save}
