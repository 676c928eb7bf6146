-- fixed, elastic  cost, max, period
-- reply           1 if it has room, plus twice the count; the time until the window ends
--
-- A state is "count end".

--@ fields
local UNITS, MAX, PERIOD, ELASTIC, COUNT, STOP, WIDTH = 7, 8, 9, 10, 11, 12, 13

--@ state
local units, max, period, elastic
local counted, stop -- the count now, and when the window ends
local width -- the digits of the stored count, or 0 if the window's end changes

--@ parse
machine = COUNTER
units = a + 0
max = b + 0
period = c + 0
elastic = kind == 'elastic'
if keys > 1 then
	l = {COUNTER, shadow, nil, nil, nil, nil, units, max, period, elastic, nil, nil, nil}
end

--@ load
units = l[UNITS]
max = l[MAX]
period = l[PERIOD]
elastic = l[ELASTIC]

--@ resume
--@ counter.load
counted = l[COUNT]
stop = l[STOP]
width = l[WIDTH]
changed = l[CHANGED]

--@ keep
l[COUNT] = counted
l[STOP] = stop
l[WIDTH] = width
l[CHANGED] = changed

--@ check
if unwritten == 0 then
	local value = try('GET', key)
	counted = 0
	stop = now
	width = 0
	changed = false
	if value then
		local digits, ends = match(#value > 0 and value or '', '^(%d+) (%d+)$') -- an error is a table
		if not digits or #digits > 16 or #ends > 16 then
			problem = type(value) == 'table' and value.err or NONSENSE
			break
		end
		ends = ends + 0
		if ends > now + period then -- the clock stepped back
			counted, stop, changed = digits + 0, now + period, charging
		elseif ends > now then
			counted = digits + 0
			stop = ends
			width = #digits
		end
	end
elseif several then
	--@ counter.resume
end
fits = mode == FORCED or counted + units <= max
if several then
	--@ counter.keep
end

--@ charge
if several then
	--@ counter.resume
end
local added = units
if mode == FORCED then
	added = math.max(0, math.min(units, max - counted))
end
if all and added > 0 then
	counted = counted + added
	changed = true
	if elastic or stop == now then -- the window opens or is extended
		stop, width = now + period, 0
	end
elseif elastic and charging and not fits and not unrecorded and units <= max then
	stop, width, changed = now + period, 0, true
end
if hold then
	if several then
		--@ counter.keep
	end
elseif changed then
	local digits = format('%d', counted)
	local done
	if #digits == width then -- the cheapest write: the window's end and the expiry stay
		done = try('SETRANGE', key, '0', digits)
	elseif width > 0 then
		done = try('SET', key, digits .. format(' %d', stop), 'KEEPTTL')
	else
		done = try('SET', key, digits .. format(' %d', stop), 'PXAT', format('%d', (stop + 999) / 1000))
	end
	if type(done) == 'table' and done.err then
		problem = done
		break
	end
end
last = last + 1
reply[last] = counted * 2 + (fits and 1 or 0)
last = last + 1
reply[last] = stop - now
