-- The machine of FixedWindow, ElasticWindow and CalendarWindow. These numbers are sent and replied:
--
--   arguments  cost, max, period. A calendar window also has four instants, by the clock of the
--              process: the starts of the period before the present one, of the present one, and of
--              the next two
--   reply      twice the count of units, plus 1 if the limit has room; the time until the window
--              ends. If nothing counts in a calendar window, the second number is the time until
--              the present period ends
--   amend      the units to give back; the period; the end of the window in which they were
--              charged; 1 if the charge opened that window and all units of the charge are given
--              back, and otherwise 0

-- In Redis a state is the text "count end", such as "3 1767326645678901". The state of a calendar
-- window is kept for a second after the end of the window. So if the clock steps back over a
-- boundary by at most a second, no period has its quota twice.

-- The fields have the names of counter.go, except these:
--
--   s.ends    the end of the window. In Go it is Expires, less what the method linger returns. If
--             there is no window, the function check sets s.ends to now
--   s.till    the end of the present period of a calendar window
--   s.stored  the end that the state in Redis has
--   s.width   how many digits the count in Redis has. From s.stored and s.width the function save
--             finds out how little it needs to write

local call, floor, format, match = redis.call, math.floor, string.format, string.match
local save -- below

local linger = 1000000

local function args(kind, cost, max, period, rest)
	local r = {
		max = max + 0, period = period + 0, elastic = kind == 'elastic', records = kind == 'elastic', shadow = false, failures = false,
		starts = kind == 'calendar' and require('state').numbers(rest),
	}
	return {ends = 0, count = 0, dirty = false, fits = false, stored = 0, width = 0, rule = r, cost = cost + 0, machine = false}
end

local function load(_, key, _, s)
	local value, count, ends = call('GET', key), '0', '0'
	if value then
		count, ends = match(value, '^(%d+) (%d+)$')
		if not count or #count > 16 or #ends > 16 then error(require('state').nonsense, 0) end
	end
	s.count, s.width, s.ends = count + 0, #count, ends + 0
	s.stored = s.ends -- in Redis
end

-- align does the work of check for a calendar window. A count belongs to the period whose end is
-- nearest to the end in the state. These two ends may differ, because processes may have different
-- time zone data.
local function align(r, now, s)
	local starts, i = r.starts, 1
	while starts[i + 1] and starts[i + 1] <= now do
		i = i + 1
	end
	local first, last = starts[i], starts[i + 1]
	if not last or now < first then
		error('TAILCUTCLOCK: the clocks differ by more than a period', 0)
	end
	local before = 2 * s.ends <= first + last
	s.till = last
	if s.count == 0 or before and s.ends <= now then -- no window; a new one ends later
		s.count, s.ends = 0, now
	elseif before then -- it counts until its end
		return
	elseif s.ends < last then -- also for a refusal; otherwise a process with the earlier end would start a new count
		s.ends, s.dirty = last, true
	elseif 2 * (s.ends - last) > last - first and last - now > linger then -- the clock stepped back
		s.ends, s.dirty = last, true
	end
end

local function check(r, now, cost, a, s)
	if r.starts then
		align(r, now, s)
	elseif s.ends <= now then -- no window; a new one ends later
		s.count, s.ends = 0, now
	elseif s.ends > now + r.period then -- the clock stepped back
		s.ends, s.dirty = now + r.period, true
	end
	return s.count + cost <= r.max or a.forced
end

local function charge(r, now, cost, a, s)
	if a.forced then -- charge what there is room for
		cost = math.min(cost, r.max * a.quotas - s.count)
		if cost <= 0 then return end
	end
	if s.ends == now or r.elastic then
		s.ends = s.till or now + r.period
	end
	s.count, s.dirty = s.count + cost, true
end

local function refuse(r, now, cost, record, s)
	if record and cost <= r.max then
		s.ends, s.dirty = now + r.period, true
	end
end

local function read(_, now, _, s, reply, last)
	reply[last + 1] = s.count * 2 + (s.fits and 1 or 0)
	reply[last + 2] = (s.count == 0 and s.till or s.ends) - now
	return last + 2
end

local function amendArgs(kind, made, units, period, ends, all)
	return {elastic = kind == 'elastic', starts = kind == 'calendar', period = period}, {at = made, ends = ends, all = all == 1}, units
end

local function amend(r, now, t, units, s, key)
	if s.ends == 0 then return end
	if r.starts then
		if s.ends < t.ends - linger or s.ends > t.ends + linger then return end
	elseif s.ends <= now then
		return
	elseif r.elastic then
		if now >= t.at + r.period then return end -- the charge may belong to an earlier window
	elseif s.ends ~= t.ends or t.all and s.count > units then
		return
	end
	s.count = s.count - units
	if s.count > 0 then
		save(r, key, now, s)
	else
		call('DEL', key)
	end
end

function save(r, key, _, s)
	local digits = format('%d', s.count)
	if s.ends ~= s.stored then
		call('SET', key, digits .. format(' %d', s.ends), 'PXAT', format('%d', floor((s.ends + (r.starts and linger or 0) + 999) / 1000)))
	elseif #digits ~= s.width then
		call('SET', key, digits .. format(' %d', s.ends), 'KEEPTTL')
	else -- the cheapest write
		call('SETRANGE', key, '0', digits)
	end
end

return {args = args, load = load, check = check, charge = charge, refuse = refuse, read = read, amendArgs = amendArgs, amend = amend, save = save}
