-- Slots of InFlight: a log of those that are taken. The member is the slot's number, which never
-- changes, so a release or a renewal can be repeated, and never meets another action's slot. The score
-- is the instant of the charge or of the last renewal. The slots of one charge have numbers in a row, from
-- the charge's number on. The client has chosen that at random, so it can release slots without the reply.
--
-- What is not here is that of trail.lua, whose header says what the fields are. In slots.go it is written out. l.ids
-- are the numbers of the slots that were added, for save.
--
-- arguments  cost, less the slots that the action has already; max; period: the lease
-- reply      1 if it has room, plus twice the slots taken; the time until all are free; the wait, or
--            0 if it has room; if the charge may be amended, the first slot's number, or 0
-- amend      1 to renew the slots or 0 to release them, period, the first slot's number, cost

local call = redis.call
local log, state, trail = require 'log', require 'state', require 'trail'
local int = state.int

local function args(ask, kind, shadow, cost, quota, period)
	local l = trail.args(ask, kind, shadow, cost, quota, period)
	l.amendable = ask.mode == 'r'
	return l
end

local function load(l, key, now)
	trail.load(l, key, now)
	l.ids = {}
end

local function check(l, now)
	l.first = nil
	return trail.check(l, now)
end

-- charge takes slots. A surcharge takes none: its action has ended.
local function charge(l, now, number)
	if l.forced then return end
	for i = 0, l.cost - 1 do
		l.ids[#l.ids + 1] = number + i
	end
	l.first = number
	trail.charge(l, now)
end

local function refuse() end

local function read(l, reply, last, now)
	last = trail.read(l, reply, last, now)
	if l.amendable then
		last = last + 1
		reply[last] = l.first or 0
	end
	return last
end

local function amend(key, now, _, list, kind)
	local renew, period, first, cost = state.unpack(state.numbers(list))
	local l = {kind = kind, max = 0, period = period}
	load(l, key, now)
	local at = call('ZSCORE', key, int(first))
	if not at or at - l.behind + l.period <= now then return false end
	if l.behind > 0 then
		log.save(l, now)
	end
	local entries = call('ZCOUNT', key, '-inf', '+inf')
	for i = 0, cost - 1 do
		if renew == 1 then
			call('ZADD', key, 'XX', int(now), int(first + i))
		else
			entries = entries - call('ZREM', key, int(first + i))
		end
	end
	log.expire(l, entries)
	return true
end

local function save(l, _, now) log.save(l, now) end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, amend = amend, save = save, slots = true}
