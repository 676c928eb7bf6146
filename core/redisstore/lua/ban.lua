-- The ban policy. These numbers are sent and replied:
--
--   arguments  the length of a manual ban, or 0; Refusals, or 0 if no refusal leads to a ban;
--              Within; ForgetAfter; the lengths of the bans
--   reply      twice the number of refusals that count, plus 1 if the charge may pass; the time
--              until all is forgotten; the time until the ban ends; how many bans there were in a
--              row, without manual bans

-- A state is "gone last ends level", and then " mark" for each refusal since the last ban. gone is
-- the instant at which all is forgotten. last is the instant of the last refusal or ban. ends is
-- the end of the last ban. level is how many bans there were in a row, without manual bans. A mark
-- is the instant of a refusal.
--
-- In Go the field ends is called Until, and the field marks is called Refusals. The function check
-- removes marks that no longer count. In Go the method prune does that.

local call, format, match, max = redis.call, string.format, string.match, math.max
local state = require 'state'
local nonsense, expiry, unpack = state.nonsense, state.expiry, state.unpack

local function args(_, byHand, refusals, within, rest)
	local n = state.numbers(rest)
	local r = {bans = true, refusals = refusals + 0, records = refusals ~= '0', within = within + 0, forget = n[1], lengths = {unpack(n, 2)}, shadow = false, failures = false}
	return {last = 0, ends = 0, level = 0, marks = false, behind = 0, fits = false, dirty = false, rule = r, cost = byHand + 0, machine = false}
end

local function load(_, key, now, s)
	s.last, s.ends, s.level, s.marks = 0, 0, 0, {}
	local value = call('GET', key)
	if not value then return end
	local gone, last, ends, level, marks = match(value, '^(%d+) (%d+) (%d+) (%d+)([ %d]*)$')
	if not gone or #gone > 16 or #last > 16 or #ends > 16 or #level > 9 then error(nonsense, 0) end
	if gone + 0 <= now then return end
	s.last, s.ends, s.level = last + 0, ends + 0, level + 0
	for mark in string.gmatch(marks, '%d+') do
		if #mark > 16 then error(nonsense, 0) end
		s.marks[#s.marks + 1] = mark + 0
	end
end

-- check removes what no longer counts. It sets behind to how far a clock that stepped back is
-- behind the last refusal or ban.
local function check(r, now, byHand, a, s)
	s.behind = max(0, s.last - now)
	local at, live = now + s.behind, {}
	if at >= max(s.last, s.ends) + r.forget then
		s.level = 0
	end
	for _, mark in ipairs(s.marks) do
		if mark + r.within > at then
			live[#live + 1] = mark
		end
	end
	s.marks = live
	return byHand > 0 and a.charging or s.ends - s.behind <= now
end

-- shift moves a state back to a clock that stepped back.
local function shift(s)
	if s.behind > 0 then
		s.last, s.ends, s.dirty = s.last - s.behind, max(0, s.ends - s.behind), true
		for i = 1, #s.marks do
			s.marks[i] = s.marks[i] - s.behind
		end
		s.behind = 0
	end
end

local function ban(now, length, s)
	s.last, s.ends, s.marks, s.dirty = now, now + length, {}, true
end

local function charge(_, now, byHand, _, s)
	shift(s)
	if byHand > 0 then
		ban(now, byHand, s)
	end
end

local function refuse(r, now, _, record, s)
	shift(s)
	if record then
		s.last, s.marks[#s.marks + 1], s.dirty = now, now, true
		if #s.marks >= r.refusals then
			s.level = s.level + 1
			ban(now, r.lengths[math.min(s.level, #r.lengths)], s)
		end
	end
end

-- forgotten returns the instant from which the state need not be kept.
local function forgotten(r, s)
	local ends = max(s.last, s.ends) + (s.level > 0 and r.forget or 0)
	return #s.marks > 0 and max(ends, s.last + r.within) or ends
end

local function read(r, now, _, s, reply, last)
	local at = now + s.behind
	reply[last + 1] = #s.marks * 2 + (s.fits and 1 or 0)
	reply[last + 2] = max(0, forgotten(r, s) - at)
	reply[last + 3] = max(0, s.ends - at)
	reply[last + 4] = s.level
	return last + 4
end

local function amendArgs() return {}, {} end

-- amend does nothing: a ban policy charges nothing.
local function amend() end

local function save(r, key, _, s)
	local gone = forgotten(r, s)
	local text = format('%d %d %d %d', gone, s.last, s.ends, s.level)
	for _, mark in ipairs(s.marks) do
		text = text .. format(' %d', mark)
	end
	call('SET', key, text, 'PXAT', expiry(gone))
end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, amendArgs = amendArgs, amend = amend, save = save}
