-- Gives back what a charge has taken, from all of its limits at one instant of this
-- server's clock. Numbers and states are those of take.lua. A state that is gone, or
-- that is not one, is left as it is: there is nothing to give back to it.
--
-- KEYS   one for each limit that was charged
-- ARGV   the instant of the charge; then for each key, as words
--          meter:    time to give (whole, part), denominator, when the debt of then is
--                    gone (whole, part), the memory of a bucket with Initial, or 0,
--                    one full quota (whole, part), and the last refund before it
--          fixed:    units, the end of the window, 1 if the charge has opened it and
--                    gives all back, else 0
--          elastic:  units, period
--          sliding, refused, moving:  units, period, max
--
-- After a refund a meter's state ends with "!" and when all is drained that was charged
-- before; then for each refund that still tells something " ", its number, which grows,
-- " " and when the debt was to be gone that it left, as in a state: core.Given.

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

local function meter(at, part, den)
	return part > 0 and int(at) .. '+' .. int(part) .. '/' .. int(den) or int(at)
end

local function more(at, part, other, otherPart)
	return at > other or (at == other and part > otherPart)
end

local function sub(at, part, whole, rest, den)
	at, part = at - whole, part - rest
	if part < 0 then
		return at - 1, part + den
	end
	return at, part
end

-- lows are those of what is given, in parts of den.
local function lows(given, den)
	local all = {}
	for nth, at, rest in string.gmatch(given, ' (%d+) (%d+)([+%d/]*)') do
		if #nth > 16 or #at > 16 then
			return nil
		end
		local p, q = string.match(rest, '^%+(%d+)/(%d+)$')
		all[#all + 1] = {nth = nth + 0, at = at + 0, part = p and q + 0 == den and p + 0 or 0}
	end
	return all
end

local maxLows = 8

-- given is what is to be known of refunds after one of a charge that knew of those up to
-- known: what it gave, and what low it left.
local function given(all, known, whole, part, den, low)
	low.nth = math.max(#all > 0 and all[#all].nth + 1 or 1, now)
	local kept = {}
	for i = 1, #all + 1 do
		local l = all[i] or low
		if all[i] and l.nth > known then
			l.at, l.part = sub(l.at, l.part, whole, part, den)
		end
		while kept[1] and not more(l.at, l.part, kept[#kept].at, kept[#kept].part) do
			kept[#kept] = nil
		end
		if l.at < now then
			kept = {}
		end
		kept[#kept + 1] = l
	end
	if #kept > maxLows then
		local nearest = 1
		for i = 2, #kept - 1 do
			if kept[i + 1].at - kept[i].at < kept[nearest + 1].at - kept[nearest].at then
				nearest = i
			end
		end
		kept[nearest].nth = kept[nearest + 1].nth
		table.remove(kept, nearest + 1)
	end
	local text = ''
	for _, l in ipairs(kept) do
		text = text .. ' ' .. int(l.nth) .. ' ' .. meter(l.at, l.part, den)
	end
	return text
end

function give.meter(key, whole, part, den, afterWhole, afterPart, memory, full, fullPart, known)
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
	local turns, last, before = string.match(rest, '^(@?%d*) ?(%d*)(.*)$')
	local till, list = string.match(before, '^!(%d+)([ %d+/]+)$')
	local all, left, leftPart = lows(list or '', den), afterWhole, afterPart
	if not all or before ~= '' and (not till or #till > 16 or #all == 0) then
		return
	end
	for _, l in ipairs(all) do
		if l.nth > known then -- and the later ones are higher
			if more(left, leftPart, l.at, l.part) then
				left, leftPart = l.at, l.part
			end
			break
		end
	end
	if more(left, leftPart, at, atPart) then -- a lower quota has cut the debt
		left, leftPart = at, atPart
	end
	left = left - now
	if at + (atPart > 0 and 1 or 0) <= now or left < 0 or (left == 0 and leftPart == 0) then
		return
	end
	if turns ~= '' and (at ~= afterWhole or atPart ~= afterPart) and more(at - now, atPart, full, fullPart) then
		return -- others wait behind this one
	end
	if more(whole, part, left, leftPart) then
		whole, part = left, leftPart
	end
	till = math.max((till or 0) + 0, at + (atPart > 0 and 1 or 0))
	at, atPart = sub(at, atPart, whole, part, den)
	local text, ends = meter(at, atPart, den) .. turns, till
	if memory > 0 then
		last = last == '' and now or last + 0
		text, ends = text .. ' ' .. int(last), last + memory
	end
	text = text .. '!' .. int(till) .. given(all, known, whole, part, den, {at = at, part = atPart})
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
