-- Fixed, elastic and calendar windows.
--
-- arguments  cost, max, period; of a calendar window also four instants: the starts of the period
--            before the one that the process's clock is in, of that one, and of the two after it
-- reply      1 if it has room, plus twice the count; the time until the window ends, which for a calendar
--            window is told if the count is 0 too
-- amend      units, period, the end of the charge's window; 1 if the charge had opened it and all is
--            given back, else 0
--
-- A state is "count end". That of a calendar window is kept for a second after its end: if the clock
-- steps back over a boundary by at most that, neither period has its quota twice.
--
-- What differs from counter.go:
--
--   ends       the end of the window, which is State.Expires less linger. If there is no window, check sets it to now
--   till       the end of the period that the clock is in, of a calendar window
--   stored, width  the end of the window in Redis, and the digits of the count: save writes no more than has changed

local call, floor, format, match = redis.call, math.floor, string.format, string.match
local save -- below

local linger = 1000000

local function args(ask, kind, _, cost, max, period, rest)
	return { -- Lua finds the first fields fastest
		ends = 0, count = 0, dirty = false, stored = 0, cost = cost + 0, max = max + 0, period = period + 0,
		elastic = kind == 'elastic', forced = ask.forced, most = ask.mode == 'o' and max * 2 or max + 0,
		starts = kind == 'calendar' and require('state').numbers(rest),
	}
end

local function load(l, key)
	local value, count, ends = call('GET', key), '0', '0'
	if value then
		count, ends = match(value, '^(%d+) (%d+)$')
		if not count or #count > 16 or #ends > 16 then error(require('state').nonsense, 0) end
	end
	l.count, l.width, l.ends = count + 0, #count, ends + 0
	l.stored = l.ends -- in Redis
end

-- align is check for a calendar window. A count belongs to the period whose end is nearest to the
-- count's. The two may differ, since processes may have different time zone data.
local function align(l, now)
	local starts, i = l.starts, 1
	while starts[i + 1] and starts[i + 1] <= now do
		i = i + 1
	end
	local first, last = starts[i], starts[i + 1]
	if not last or now < first then
		error('TAILCUTCLOCK: the clocks differ by more than a period', 0)
	end
	local before = 2 * l.ends <= first + last
	l.till = last
	if l.count == 0 or before and l.ends <= now then -- no window; a new one ends later
		l.count, l.ends = 0, now
	elseif before then -- it counts until its end
		return
	elseif l.ends < last then -- a refusal tells it too, or a process with the earlier end would begin anew
		l.ends, l.dirty = last, true
	elseif 2 * (l.ends - last) > last - first and last - now > linger then -- the clock stepped back
		l.ends, l.dirty = last, true
	end
end

local function check(l, now)
	if l.starts then
		align(l, now)
	elseif l.ends <= now then -- no window; a new one ends later
		l.count, l.ends = 0, now
	elseif l.ends > now + l.period then -- the clock stepped back
		l.ends, l.dirty = now + l.period, true
	end
	return l.count + l.cost <= l.max or l.forced
end

local function charge(l, now)
	local cost = l.cost
	if l.forced then -- charge what there is room for
		cost = math.min(cost, l.most - l.count)
		if cost <= 0 then return end
	end
	if l.ends == now or l.elastic then
		l.ends = l.till or now + l.period
	end
	l.count, l.dirty = l.count + cost, true
end

local function refuse(l, now, record, patient)
	if l.elastic and record and not patient and not l.fits and l.cost <= l.max then
		l.ends, l.dirty = now + l.period, true
	end
end

local function read(l, reply, last, now)
	reply[last + 1] = l.count * 2 + (l.fits and 1 or 0)
	reply[last + 2] = (l.count == 0 and l.till or l.ends) - now
	return last + 2
end

local function amend(key, now, made, list, kind)
	local l, state = {}, require 'state'
	local units, period, ends, all = state.unpack(state.numbers(list))
	load(l, key)
	if l.ends == 0 then return end
	if kind == 'calendar' then
		if l.ends < ends - linger or l.ends > ends + linger then return end
	elseif l.ends <= now then
		return
	elseif kind == 'elastic' then
		if now >= made + period then return end -- the charge may belong to an earlier window
	elseif l.ends ~= ends or all == 1 and l.count > units then
		return
	end
	l.count = l.count - units
	if l.count > 0 then
		save(l, key)
	else
		call('DEL', key)
	end
end

function save(l, key)
	local digits = format('%d', l.count)
	if l.ends ~= l.stored then
		call('SET', key, digits .. format(' %d', l.ends), 'PXAT', format('%d', floor((l.ends + (l.starts and linger or 0) + 999) / 1000)))
	elseif #digits ~= l.width then
		call('SET', key, digits .. format(' %d', l.ends), 'KEEPTTL')
	else -- the cheapest write
		call('SETRANGE', key, '0', digits)
	end
end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, amend = amend, save = save}
