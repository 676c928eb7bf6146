-- Sliding windows, which keep a log, and moving windows, which keep a ring. Slots of InFlight are entries of a log too.
--
-- In trail.go a charge changes the queue at once. Here the queue is in Redis: charges count what they add, and save
-- writes it, after the last of the charges that are repeated. They have one instant, so a charge needs to know only
-- these numbers. slots.lua, log.lua and ring.lua use them too:
--
--   newest    the newest entry in Redis, or false
--   behind    as in Go: how far the clock has stepped back. shift is part of save
--   stored    how many entries in Redis are live; false until it is needed, since to find that out takes a command.
--             Only trail.lua uses it
--   added     how many entries have been added since, all of them with the instant of the run
--   admitted  how many of them are admitted. They come first, and the rest has been refused
--   most      how many may count: max, or what a forced ask may leave
--   wait      as read replies it, since to find it out takes a command
--
-- A queue is log.lua or ring.lua. The functions of both, and what does it in queue.go:
--
--   load(s, key)               sets key, which the others use, and newest
--   fromNewest(s, i)           at, but i counts from the newest, which is the 0th; nil if there is none
--   live(s, after)             len less dead(after)
--   remove(r, made, units, s)  remove, and in amend of trail.go what finds the entries
--   save(r, now, s, stored)    shift, push and drop; of the entries in Redis, stored are live
--
-- arguments  cost, max, period
-- reply      1 if it has room, plus twice the count; the time until its full quota is
--            available; the wait, or 0 if it has room
-- amend      units, period, max

local max, min = math.max, math.min
local maxOwed = 70000000 -- the most entries that an ask above the quota leaves: a string cannot hold 74 million

local function args(kind, cost, quota, period)
	return {
		newest = 0, behind = 0, stored = 0, added = 0, admitted = 0, most = 0, wait = 0, fits = false, dirty = false,
		cost = cost + 0, machine = false, rule = {
			max = quota + 0, period = period + 0, records = kind == 'refused', shadow = false, failures = false,
			queue = require(kind == 'moving' and 'ring' or 'log'),
		},
	}
end

local function load(r, key, now, s)
	r.queue.load(s, key)
	s.behind = max(0, (s.newest or 0) - now)
	s.added, s.admitted, s.stored, s.most, s.dirty = 0, 0, not s.newest and 0, r.max, s.behind > 0
end

-- wait is how long it takes until free of trail.go. It reads one entry only: the newest one that must have left
-- the window.
local function wait(r, now, cost, s)
	local last = r.max - cost -- counted from the newest
	if last < s.added then return r.period end
	local at = r.queue.fromNewest(s, last - s.added)
	return at and max(0, at - s.behind + r.period - now) or 0
end

-- stored is how many entries in Redis are within the period.
local function stored(r, now, s)
	s.stored = s.stored or r.queue.live(s, now - r.period + s.behind)
	return s.stored
end

-- live is how many entries are within the period. If refusals are recorded too, the newest max
-- stay, or more if a limiter with a higher max wrote them, or an ask above the quota.
local function live(r, now, s)
	local kept = stored(r, now, s)
	return min(kept + s.added, max(r.max, kept + s.admitted))
end

local function check(r, now, cost, a, s)
	s.wait = cost <= r.max and wait(r, now, cost, s) or 0
	return cost <= r.max and s.wait == 0 or a.forced
end

local function charge(r, now, cost, a, s)
	if a.forced then -- charge what there is room for
		s.most = a.quotas > 1 and min(r.max * a.quotas, maxOwed) or r.max
		cost = max(0, min(cost, s.most - live(r, now, s)))
	end
	s.added, s.admitted = s.added + cost, s.admitted + cost
	s.dirty = s.dirty or cost > 0
end

local function refuse(r, now, cost, record, s)
	if record and cost <= r.max then
		s.added, s.dirty = s.added + cost, true
		s.wait = wait(r, now, cost, s)
	end
end

local function read(r, now, _, s, reply, last)
	local n = live(r, now, s)
	local newest = s.added > 0 and now or n > 0 and s.newest - s.behind
	reply[last + 1] = n * 2 + (s.fits and 1 or 0)
	reply[last + 2] = n > 0 and newest + r.period - now or 0
	reply[last + 3] = n > 0 and s.wait or 0
	return last + 3
end

local function amendArgs(kind, made, units, period, quota)
	return args(kind, units, quota, period).rule, {at = made}, units
end

local function amend(r, now, t, units, s)
	if not s.newest or s.newest + r.period <= now then return end -- it is over, and the key lives for the rest of the millisecond
	if r.records and r.queue.live(s, now - r.period) >= r.max then
		return -- older entries that still count may have been dropped for newer ones
	end
	r.queue.remove(r, t.at, units, s)
end

local function save(r, _, now, s) r.queue.save(r, now, s, stored(r, now, s)) end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, amendArgs = amendArgs, amend = amend, save = save}
