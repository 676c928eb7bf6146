-- Slots of InFlight: a log of the slots that are taken. The member of an entry is the number of the
-- slot, which does not change. The score is the instant of the charge or of the last renewal. The
-- slots of one charge have numbers in a row, from the number of the charge on.
--
-- The client has chosen the number of the charge at random. So the client can release the slots
-- even if it got no reply, and a repeated release or renewal practically never finds the slot of
-- another action.
--
-- Slots use functions and fields of trail.lua. In Go slots do not use trail.go. Slots have two more
-- fields. s.ids has the numbers of the slots that were added, which save needs. s.first is the
-- first slot of the last charge, or false if that charge took none.

-- These numbers are sent and replied:
--
--   arguments  cost, less the slots that the action has already, if cost is at most max; max; the
--              lease
--   reply      twice the number of slots that are taken, plus 1 if the limit has room; the time
--              until all are free; the wait, or 0 if the limit has room. If the charge may be
--              amended, the number of its first slot follows, or 0 if it took none
--   amend      1 to renew the slots, or 0 to release them; the lease; the number of the first slot;
--              cost

local call = redis.call
local log, state, trail = require 'log', require 'state', require 'trail'
local int = state.int

local function load(r, key, now, s)
	trail.load(r, key, now, s)
	s.ids = {}
end

local function check(r, now, cost, a, s)
	s.first = false
	return trail.check(r, now, cost, a, s)
end

-- charge takes slots. A surcharge takes none, because its action has ended.
local function charge(r, now, cost, a, s, number)
	if a.forced then return end
	for i = 0, cost - 1 do
		s.ids[#s.ids + 1] = number + i
	end
	s.first = number
	trail.charge(r, now, cost, a, s)
end

local function refuse() end

local function read(r, now, cost, s, reply, last, amendable)
	last = trail.read(r, now, cost, s, reply, last)
	if amendable then
		last = last + 1
		reply[last] = s.first or 0
	end
	return last
end

local function amendArgs(kind, _, renew, period, first, cost)
	return trail.args(kind, cost, 0, period).rule, {first = first, cost = cost}, renew == 1
end

local function amend(r, now, t, renew, s, key)
	local at = call('ZSCORE', key, int(t.first))
	if not at or at - s.behind + r.period <= now then return false end
	if s.behind > 0 then
		log.save(r, now, s, 0)
	end
	local entries = call('ZCOUNT', key, '-inf', '+inf')
	for i = 0, t.cost - 1 do
		if renew then
			call('ZADD', key, 'XX', int(now), int(t.first + i))
		else
			entries = entries - call('ZREM', key, int(t.first + i))
		end
	end
	log.expire(r, s, entries)
	return true
end

return {args = trail.args, load = load, check = check, charge = charge, refuse = refuse, read = read, amendArgs = amendArgs, amend = amend, save = trail.save, slots = true}
