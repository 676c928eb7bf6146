-- fixed, elastic  cost, max, period
-- reply           whether it has room, and twice the count; the time until the window ends
--
-- A state is "count end".

--@ fields
local UNITS, MAX, PERIOD, ELASTIC, COUNT, STOP, WIDTH = 5, 6, 7, 8, 9, 10, 11

--@ parse
l = {COUNTER, shadow ~= '', false, false, a + 0, b + 0, c + 0, kind == 'elastic', 0, 0, 0}

--@ check
local units = l[COUNT]
if not again then
	local value, stop, width = try('GET', KEYS[key + k]), now, 0 -- width: of the count, if the window goes on
	units = 0
	if value then
		local digits, ends
		if #value > 0 then -- it is no error
			digits, ends = match(value, '^(%d+) (%d+)$')
		end
		if not digits or #digits > 16 or #ends > 16 then
			problem = type(value) == 'table' and value.err or NONSENSE
			break
		end
		ends = ends + 0
		if ends > now + l[PERIOD] then -- the clock stepped back
			units, stop, changed = digits + 0, now + l[PERIOD], true
		elseif ends > now then
			units, stop, width = digits + 0, ends, #digits
		end
	end
	l[COUNT], l[STOP], l[WIDTH], l[CHANGED] = units, stop, width, changed
end
fits = forced or units + l[UNITS] <= l[MAX]

--@ charge
local units, stop = l[UNITS], l[STOP]
if forced then
	units = math.max(0, math.min(units, l[MAX] - l[COUNT]))
end
if all and units > 0 then
	l[COUNT], l[CHANGED] = l[COUNT] + units, true
	if l[ELASTIC] or stop == now then -- the window opens
		stop = now + l[PERIOD]
		l[STOP], l[WIDTH] = stop, 0
	end
elseif l[ELASTIC] and charging and not fits and not banned and units <= l[MAX] then
	stop = now + l[PERIOD]
	l[STOP], l[WIDTH], l[CHANGED] = stop, 0, true
end
if charging and not equal and l[CHANGED] then
	local digits, width = format('%d', l[COUNT]), l[WIDTH]
	if #digits == width then -- the cheapest write: the window's end and the expiry stay
		done = try('SETRANGE', KEYS[key + k], '0', digits)
		done = type(done) == 'table' and done
	elseif width > 0 then
		done = try('SET', KEYS[key + k], digits .. format(' %d', stop), 'KEEPTTL')
	else
		done = try('SET', KEYS[key + k], digits .. format(' %d', stop), 'PXAT', format('%d', floor((stop + 999) / 1000)))
	end
end
reply[last + 1], reply[last + 2] = l[COUNT] * 2 + (fits and 1 or 0), stop - now
last = last + 2
