-- Sliding windows, which keep a log, and moving windows, which keep a ring. Slots of InFlight are entries of a log too.
--
-- In trail.go a charge changes the queue at once. Here the queue is in Redis: charges count what they add, and save
-- writes it, after the last of the charges that are repeated. They have one instant, so a charge needs to know only
-- these numbers. slots.lua, log.lua and ring.lua use them too:
--
--   newest    the newest entry in Redis, or nil
--   behind    as in Go: how far the clock has stepped back. shift is part of save
--   stored    how many entries in Redis are live; nil until it is needed, since to find that out takes a command
--   added     how many entries have been added since, all of them with the instant of the run
--   admitted  how many of them are admitted. They come first, and the rest has been refused
--
-- A queue is log.lua or ring.lua. The functions of both, and what does it in queue.go:
--
--   load(l, key)            sets newest
--   fromNewest(l, i)        at, but i counts from the newest, which is the 0th; nil if there is none
--   live(l, after)          len less dead(after)
--   remove(l, made, units)  remove, and in amend of trail.go what finds the entries
--   save(l, now)            shift, push and drop
--
-- arguments  cost, max, period
-- reply      1 if it has room, plus twice the count; the time until its full quota is
--            available; the wait, or 0 if it has room
-- amend      units, period, max

local max, min = math.max, math.min
local state = require 'state'
local maxOwed = 70000000 -- the most entries that an ask above the quota leaves: a string cannot hold 74 million

local function args(ask, kind, _, cost, quota, period)
	return {
		kind = kind, cost = cost + 0, max = quota + 0, period = period + 0, forced = ask.forced,
		most = ask.mode == 'o' and min(quota * 2, maxOwed) or quota + 0,
	}
end

local function load(l, key, now)
	l.queue = require(l.kind == 'moving' and 'ring' or 'log')
	l.queue.load(l, key)
	l.behind = max(0, (l.newest or 0) - now)
	l.added, l.admitted, l.stored, l.dirty = 0, 0, not l.newest and 0 or nil, l.behind > 0
end

-- wait is how long it takes until free of trail.go. It reads one entry only: the newest one that must have left
-- the window.
local function wait(l, now)
	local last = l.max - l.cost -- counted from the newest
	if last < l.added then return l.period end
	local at = l.queue.fromNewest(l, last - l.added)
	return at and max(0, at - l.behind + l.period - now) or 0
end

-- live is how many entries are within the period. If refusals are recorded too, the newest max
-- stay, or more if a limiter with a higher max wrote them, or an ask above the quota.
local function live(l, now)
	l.stored = l.stored or l.queue.live(l, now - l.period + l.behind)
	return min(l.stored + l.added, max(l.max, l.stored + l.admitted))
end

local function check(l, now)
	l.wait = l.cost <= l.max and wait(l, now) or 0
	return l.forced or l.cost <= l.max and l.wait == 0
end

local function charge(l, now)
	local cost = l.cost
	if l.forced then -- charge what there is room for
		cost = max(0, min(cost, l.most - live(l, now)))
	end
	l.added, l.admitted = l.added + cost, l.admitted + cost
	l.dirty = l.dirty or cost > 0
end

local function refuse(l, now, record, patient)
	if l.kind == 'refused' and record and not patient and not l.fits and l.cost <= l.max then
		l.added, l.dirty = l.added + l.cost, true
		l.wait = wait(l, now)
	end
end

local function read(l, reply, last, now)
	local n = live(l, now)
	local newest = l.added > 0 and now or n > 0 and l.newest - l.behind
	reply[last + 1] = n * 2 + (l.fits and 1 or 0)
	reply[last + 2] = n > 0 and newest + l.period - now or 0
	reply[last + 3] = n > 0 and l.wait or 0
	return last + 3
end

local function amend(key, now, made, list, kind)
	local units, period, quota = state.unpack(state.numbers(list))
	local l = {kind = kind, period = period, max = quota}
	load(l, key, now)
	if not l.newest or l.newest + l.period <= now then return end -- it is over, and the key lives for the rest of the millisecond
	if l.kind == 'refused' and l.queue.live(l, now - l.period) >= l.max then
		return -- older entries that still count may have been dropped for newer ones
	end
	l.queue.remove(l, made, units)
end

local function save(l, _, now) l.queue.save(l, now) end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, amend = amend, save = save}
