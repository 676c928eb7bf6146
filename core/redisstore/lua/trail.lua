-- Sliding windows, which keep a log, and moving windows, which keep a ring. The slots of InFlight
-- are entries of a log too.
--
-- In Go a charge changes the queue at once. Here the queue is in Redis. A charge only counts the
-- entries that it adds. After the charge, or after the last of its repetitions, save writes these
-- entries. They all have the instant of the run, so a charge needs only these fields of s:
--
--   newest    the newest entry in Redis, or false
--   behind    how far the clock has stepped back, as in Go. save moves the entries back
--   stored    how many entries in Redis are live. It is false until it is needed, because to count
--             them takes a command. Only trail.lua uses it
--   added     how many entries have been added since they were loaded, all of them at the instant
--             of the run
--   admitted  how many of the added entries are admitted actions. save writes them first. The other
--             added entries are refused attempts
--   most      how many entries may count: max, or what a forced charge may leave
--   wait      the wait that read replies. It is kept, because to compute it takes a command
--
-- The queue also sets s.newest and s.key. In a log, log.lua sets s.id. For slots, slots.lua sets
-- s.ids and s.first, and log.lua reads s.ids too. ring.lua sets the other fields of a ring.

-- The queue is log.lua or ring.lua. Both have these functions:
--
--   load(s, key)               sets key, which the other functions use, and newest
--   fromNewest(s, i)           returns the i-th entry counted from the newest, which is the 0th. If
--                              there is none, it returns nil. In Go the method at counts from the
--                              oldest
--   live(s, after)             returns how many entries are later than the instant after
--   remove(r, made, units, s)  removes entries of the instant made. In Go the method amend finds
--                              these entries
--   save(r, now, s, stored)    does what the methods shift, push and drop do in Go. The argument
--                              stored is how many entries in Redis are live

-- These numbers are sent and replied:
--
--   arguments  cost, max, period
--   reply      twice the count, plus 1 if the limit has room; the time until the full quota is
--              available; the wait, or 0 if the limit has room
--   amend      units, period, max

local max, min = math.max, math.min
local maxOwed = 70000000 -- the most entries that a charge above the quota leaves: a string has no room for 74 million

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

-- wait returns how long it takes until a cost has room. It reads at most one entry: the newest of
-- those that must leave the window first. In Go the method free computes the instant at which a
-- cost has room.
local function wait(r, now, cost, s)
	local last = r.max - cost -- counted from the newest
	if last < s.added then return r.period end
	local at = r.queue.fromNewest(s, last - s.added)
	return at and max(0, at - s.behind + r.period - now) or 0
end

-- stored returns how many entries in Redis are within the period.
local function stored(r, now, s)
	s.stored = s.stored or r.queue.live(s, now - r.period + s.behind)
	return s.stored
end

-- live returns how many entries count. If refusals are recorded too, usually only the newest max
-- entries count. More entries count if a limiter with a higher max, or a charge above the quota,
-- has written them.
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
	if not s.newest or s.newest + r.period <= now then return end -- the window is over; Redis keeps the key for the rest of the millisecond
	if r.records and r.queue.live(s, now - r.period) >= r.max then
		return -- older entries that still count may have been dropped for newer ones
	end
	r.queue.remove(r, t.at, units, s)
end

local function save(r, _, now, s) r.queue.save(r, now, s, stored(r, now, s)) end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, amendArgs = amendArgs, amend = amend, save = save}
