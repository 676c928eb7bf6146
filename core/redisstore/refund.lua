-- Gives back what a charge has taken, from all of its limits at one instant of this
-- server's clock. Numbers and states are those of take.lua. A state that is gone, or
-- that is not one, is left as it is: there is nothing to give back to it.
--
-- KEYS   one for each limit that was charged
-- ARGV   the instant of the charge; then for each key, as words
--          meter:    time to give (whole, part), denominator, when the debt of then is
--                    gone (whole, part), the memory of a bucket with Initial, or 0, and
--                    one full quota (whole, part)
--          fixed:    units, the end of the window, 1 if the charge has opened it and
--                    gives all back, else 0
--          elastic:  units, period
--          sliding, refused, moving:  units, period, max

local call, format, floor = redis.call, string.format, math.floor

local function int(n) return format('%d', n) end

local function expiry(at) return format('%d', math.ceil(at / 1000)) end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local made = ARGV[1] + 0
if now < made then
	return 0
end

local give = {}

function give.meter(key, whole, part, den, afterWhole, afterPart, memory, full, fullPart)
	local value = call('GET', key) or ''
	local digits, rest = string.match(value, '^(%d+)(.*)$')
	if not digits then
		return
	end
	local at, atPart = digits + 0, 0
	local p, q, tail = string.match(rest, '^%+(%d+)/(%d+)(.*)$')
	if p then
		rest, atPart = tail, p + 0
		if q + 0 ~= den then
			at, atPart = at + 1, 0
		end
	end
	local turns, last = string.match(rest, '^(@?%d*) ?(%d*)$')
	local left = afterWhole - now
	if not turns or at + (atPart > 0 and 1 or 0) <= now or left < 0 or (left == 0 and afterPart == 0) then
		return
	end
	local debt = at - now
	if turns ~= '' and (at ~= afterWhole or atPart ~= afterPart) and (debt > full or (debt == full and atPart > fullPart)) then
		return -- others wait behind this one
	end
	if whole > left or (whole == left and part > afterPart) then
		whole, part = left, afterPart
	end
	at, atPart = at - whole, atPart - part
	if atPart < 0 then
		at, atPart = at - 1, atPart + den
	end
	local ends, text = at, int(at)
	if atPart > 0 then
		text, ends = text .. '+' .. int(atPart) .. '/' .. int(den), at + 1
	end
	text = text .. turns
	if memory > 0 then
		last = last == '' and now or last + 0
		text, ends = text .. ' ' .. int(last), last + memory
	end
	if ends <= now then
		call('DEL', key)
	else
		call('SET', key, text, 'PXAT', expiry(ends))
	end
end

local function counter(key)
	local count, stop = string.match(call('GET', key) or '', '^(%d+) (%d+)$')
	if count and stop + 0 > now then
		return count + 0, stop + 0
	end
end

local function write(key, count, stop)
	if count > 0 then
		call('SET', key, int(count) .. ' ' .. int(stop), 'KEEPTTL')
	else -- the window is whole
		call('DEL', key)
	end
end

function give.fixed(key, units, stop, opened)
	local count, ends = counter(key)
	if count and ends == stop and (opened == 0 or count <= units) then
		write(key, count - units, ends)
	end
end

function give.elastic(key, units, period)
	local count, ends = counter(key)
	if count and now < made + period then
		write(key, count - units, ends)
	end
end

function give.sliding(key, units, period)
	local members = call('ZRANGE', key, ARGV[1], ARGV[1], 'BYSCORE')
	-- A refused attempt of the same instant goes only if the action itself was dropped
	-- for it, by a limit with a lower max: in process they cannot be told apart.
	for _, mark in ipairs({false, true}) do
		for i = #members, 1, -1 do
			if units > 0 and (string.sub(members[i], -1) == 'r') == mark then
				call('ZREM', key, members[i])
				units = units - 1
			end
		end
	end
	local newest = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
	if newest[1] then
		call('PEXPIREAT', key, expiry(newest[2] + period))
	end
end

function give.refused(key, units, period, max)
	if call('ZCOUNT', key, '(' .. int(now - period), '+inf') < max then
		give.sliding(key, units, period)
	end
end

local header, width, since = 56, 7, 65536

function give.moving(key, units, period)
	local head, fields = call('GETRANGE', key, '0', int(header - 1)), {}
	for i, at in ipairs({1, 17, 33, 41, 49}) do
		fields[i] = string.match(string.sub(head, at, at + (i < 3 and 15 or 7)), '^ *(%d+)$')
		if not fields[i] then
			return
		end
	end
	local base, first, n, cap = fields[1] + 0, fields[3] + 0, fields[4] + 0, fields[5] + 0
	if n > cap or first >= cap or call('STRLEN', key) ~= header + width * cap then
		return
	end
	local function slot(i) return header + width * ((first + i) % cap) end
	local function entry(i)
		local at = 0
		for _, b in ipairs({string.byte(call('GETRANGE', key, int(slot(i)), int(slot(i) + width - 1)), 1, width)}) do
			at = at * 256 + b
		end
		return base + at
	end
	-- after is the first entry from low on that is later than at.
	local function after(at, low)
		local high = n
		while low < high do
			local mid = floor((low + high) / 2)
			if entry(mid) <= at then low = mid + 1 else high = mid end
		end
		return low
	end
	local to = after(made, math.max(0, n - since - 1))
	if n - to > since then
		return
	end
	local from = after(made - 1, math.max(0, to - units))
	if from == to then
		return
	end
	-- What came since moves up, by parts if the ring's end is within.
	local function part(i, k) return math.min(k, cap - (first + i) % cap) end
	local left, bytes = n - to, ''
	while left > 0 do
		local k = part(n - left, left)
		bytes = bytes .. call('GETRANGE', key, int(slot(n - left)), int(slot(n - left) + width * k - 1))
		left = left - k
	end
	local at = from
	while bytes ~= '' do
		local k = part(at, #bytes / width)
		call('SETRANGE', key, int(slot(at)), string.sub(bytes, 1, width * k))
		at, bytes = at + k, string.sub(bytes, width * k + 1)
	end
	n = n - (to - from)
	if n == 0 then
		call('DEL', key)
		return
	end
	local newest = entry(n - 1)
	call('SETRANGE', key, '0', format('%16d%16d%8d%8d%8d', base, newest, first, n, cap))
	call('PEXPIREAT', key, expiry(newest + period))
end

for i, key in ipairs(KEYS) do
	local words = {}
	for word in string.gmatch(ARGV[i + 1], '%S+') do
		words[#words + 1] = tonumber(word) or word
	end
	local kind = words[1]
	if call('TYPE', key).ok == ((kind == 'sliding' or kind == 'refused') and 'zset' or 'string') then
		give[kind](key, unpack(words, 2))
	end
end
return 1
