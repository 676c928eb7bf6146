-- Fixed and elastic windows.
--
-- arguments  cost, max, period
-- reply      1 if it has room, plus twice the count; the time until the window ends
-- refund     units, period, the end of the charge's window; 1 if the charge had opened it and all is
--            given back, else 0
--
-- A state is "count end".

local call, format, match = redis.call, string.format, string.match
local state = require 'state'
local nonsense, expiry = state.nonsense, state.expiry
local save -- below

local function args(list, ask, _, kind)
	local cost, max, period = match(list, '(%d+),(%d+),(%d+)')
	return {
		cost = cost + 0, max = max + 0, period = period + 0, elastic = kind == 'elastic', forced = ask.forced,
		exists = false, dirty = false, count = 0, ends = 0, width = 0,
	}
end

local function load(l, key)
	local value = call('GET', key)
	l.exists, l.dirty = value, false
	if value then
		local count, ends = match(value, '^(%d+) (%d+)$')
		if not count or #count > 16 or #ends > 16 then error(nonsense, 0) end
		l.count, l.ends = count + 0, ends + 0
		l.width = #count -- the digits of the stored count, or 0 if the end has changed since
	end
end

local function check(l, now)
	if not l.exists or l.ends <= now then
		l.exists, l.count, l.ends, l.width = false, 0, now, 0
	elseif l.ends > now + l.period then -- the clock stepped back
		l.ends, l.width, l.dirty = now + l.period, 0, true
	end
	return l.forced or l.count + l.cost <= l.max
end

local function charge(l, now)
	local cost = l.cost
	if l.forced then -- charge what there is room for
		cost = math.min(cost, l.max - l.count)
		if cost <= 0 then return end
	end
	if not l.exists or l.elastic then
		l.ends, l.width = now + l.period, 0
	end
	l.count, l.exists, l.dirty = l.count + cost, true, true
end

local function refuse(l, now, record, patient)
	if l.elastic and record and not patient and not l.fits and l.cost <= l.max then
		l.ends, l.width, l.dirty = now + l.period, 0, true
	end
end

local function read(l, reply, last, now)
	reply[last + 1] = l.count * 2 + (l.fits and 1 or 0)
	reply[last + 2] = l.ends - now
	return last + 2
end

local function refund(key, now, made, list, kind)
	local l, n = {}, state.numbers(list)
	load(l, key)
	if not l.exists or l.ends <= now then return end
	if kind == 'elastic' then
		if now >= made + n[2] then return end -- the charge may belong to an earlier window
	elseif l.ends ~= n[3] or n[4] == 1 and l.count > n[1] then
		return
	end
	l.count = l.count - n[1]
	if l.count > 0 then
		save(l, key)
	else
		call('DEL', key)
	end
end

function save(l, key)
	local digits = format('%d', l.count)
	if #digits == l.width then -- the cheapest write: the end and the expiry stay
		call('SETRANGE', key, '0', digits)
	elseif l.width > 0 then
		call('SET', key, digits .. format(' %d', l.ends), 'KEEPTTL')
	else
		call('SET', key, digits .. format(' %d', l.ends), 'PXAT', expiry(l.ends))
	end
end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, refund = refund, save = save}
