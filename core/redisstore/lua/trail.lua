-- Sliding windows, which keep a log, and moving windows, which keep a ring. A queue of instants
-- is in log.lua or ring.lua; both have these functions:
--
--   load(l, key)    sets newest, the newest instant, or nil if there is none
--   entry(l, i)     the i-th instant, the newest being the 0th, or nil
--   live(l, after)  how many instants are later than after
--   remove(l, made, units)  removes units of the instant made
--   save(l, now)    moves all instants back by ahead, then adds added times now
--
-- trail.go and queue.go write at once what is only counted here until save: charge and refuse add to
-- added, and charge to admitted too. wait is Reading.Wait, entry is At, counted from the newest, live
-- is what dead leaves, and ahead is what shift subtracts.
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

-- load sets ahead, which is how far the state is ahead of a clock that stepped back. stored is how many
-- of the entries in Redis are live, or nil until live counts them. save writes what was added since: first
-- the admitted ones, then the refused ones.
local function load(l, key, now)
	l.queue = require(l.kind == 'moving' and 'ring' or 'log')
	l.queue.load(l, key)
	l.ahead = max(0, (l.newest or 0) - now)
	l.added, l.admitted, l.stored, l.dirty = 0, 0, not l.newest and 0 or nil, l.ahead > 0
end

-- wait is how long it takes until there is room for the cost. It reads one entry only: the
-- newest one that must have left the window.
local function wait(l, now)
	local place, at = l.max - l.cost, now
	if place >= l.added then
		at = l.queue.entry(l, place - l.added)
		if not at then return 0 end
		at = at - l.ahead
	end
	return max(0, at + l.period - now)
end

-- live is how many entries are within the period. If refusals are recorded too, the newest max
-- stay, or more if a limiter with a higher max wrote them, or an ask above the quota.
local function live(l, now)
	l.stored = l.stored or l.queue.live(l, now - l.period + l.ahead)
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
	local newest = l.added > 0 and now or n > 0 and l.newest - l.ahead
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
