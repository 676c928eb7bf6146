-- fixed, elastic  cost, max, period
-- reply           1 if it has room, plus twice the count; the time until the window ends
--
-- A state is "count end".

--@ fields
local UNITS, MAX, PERIOD, ELASTIC, COUNT, STOP, WIDTH = 7, 8, 9, 10, 11, 12, 13

--@ state
local counted, stop = 0, 0 -- the count now, and when the window ends
local width = 0 -- the digits of the stored count, if the window goes on

--@ parse
l = {COUNTER, shadow, nil, nil, nil, nil, a + 0, b + 0, c + 0, kind == 'elastic', nil, nil, nil}

--@ check
if not again then
	local value = try('GET', key)
	counted, stop, width, changed = 0, now, 0, false
	if value then
		local digits, ends
		if #value > 0 then -- not an error
			digits, ends = match(value, '^(%d+) (%d+)$')
		end
		if not digits or #digits > 16 or #ends > 16 then
			problem = type(value) == 'table' and value.err or NONSENSE
			break
		end
		ends = ends + 0
		if ends > now + l[PERIOD] then -- the clock stepped back
			counted, stop, changed = digits + 0, now + l[PERIOD], true
		elseif ends > now then
			counted, stop, width = digits + 0, ends, #digits
		end
	end
elseif n > 1 then
	counted, stop, width, changed = l[COUNT], l[STOP], l[WIDTH], l[CHANGED]
end
fits = mode == FORCED or counted + l[UNITS] <= l[MAX]
if n > 1 then
	l[COUNT], l[STOP], l[WIDTH], l[CHANGED] = counted, stop, width, changed
end

--@ charge
if n > 1 then
	counted, stop, width, changed = l[COUNT], l[STOP], l[WIDTH], l[CHANGED]
end
local units = l[UNITS]
if mode == FORCED then
	units = math.max(0, math.min(units, l[MAX] - counted))
end
if all and units > 0 then
	counted, changed = counted + units, true
	if l[ELASTIC] or stop == now then -- the window opens
		stop, width = now + l[PERIOD], 0
	end
elseif l[ELASTIC] and mode ~= PEEK and not fits and not banned and units <= l[MAX] then
	stop, width, changed = now + l[PERIOD], 0, true
end
if mode == PEEK then
elseif equal then
	if n > 1 then
		l[COUNT], l[STOP], l[WIDTH], l[CHANGED] = counted, stop, width, changed
	end
elseif changed then
	local digits, ends = format('%d', counted), stop + 999
	local done
	if #digits == width then -- the cheapest write: the window's end and the expiry stay
		done = try('SETRANGE', key, '0', digits)
	elseif width > 0 then
		done = try('SET', key, digits .. format(' %d', stop), 'KEEPTTL')
	else
		done = try('SET', key, digits .. format(' %d', stop), 'PXAT', format('%d', (ends - ends % 1000) / 1000))
	end
	if type(done) == 'table' and done.err then
		problem = done
		break
	end
end
reply[last + 1], reply[last + 2] = counted * 2 + (fits and 1 or 0), stop - now
last = last + 2
