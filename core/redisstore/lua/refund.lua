-- Gives back units of a charge to all of its limits, at one instant of this server's clock.
-- There is then no more room than if the charge had never happened. Numbers and states are
-- those of take.lua. A missing key and a foreign value are left as they are.
--
-- KEYS   one for each limit that was charged
-- ARGV   the instant of the charge; then for each key
--          meter:    time to give (whole, part), parts, the debt's end after the charge
--                    (tat, part), burst (whole, part), and the last refund before the charge
--          fixed:    units, the end of the window, 1 if the charge has opened it and
--                    gives all back, else 0
--          elastic:  units, period
--          sliding, refused, moving:  units, period, max
--
-- After a refund a meter's state ends with "!" and the instant at which everything charged
-- before has drained. For each refund that still matters " ", its number, " " and the tat
-- after it follow. Later refunds have higher numbers.

local match, format = string.match, string.format

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local made = ARGV[1] + 0
if now < made then
	return 0
end

local give = {}

--@ meter.text

local function above(tat, part, other, otherPart)
	return tat > other or (tat == other and part > otherPart)
end

local function less(tat, part, whole, rest, parts)
	tat, part = tat - whole, part - rest
	if part < 0 then
		return tat - 1, part + parts
	end
	return tat, part
end

local most = 8 -- refunds that a state remembers

-- remember adds the refund new to refunds: whole and part are the time that it gave back. The
-- charge knew of the refunds up to known. A refund replaces earlier ones with no lower tat,
-- and all earlier ones if its tat is past.
local function remember(refunds, known, whole, part, parts, new)
	new.number = math.max(#refunds > 0 and refunds[#refunds].number + 1 or 1, now)
	local kept = {}
	for i = 1, #refunds + 1 do
		local r = refunds[i] or new
		if refunds[i] and r.number > known then
			r.tat, r.part = less(r.tat, r.part, whole, part, parts)
		end
		while kept[1] and not above(r.tat, r.part, kept[#kept].tat, kept[#kept].part) do
			kept[#kept] = nil
		end
		if r.tat < now then
			kept = {}
		end
		kept[#kept + 1] = r
	end
	if #kept > most then -- the two with the nearest tats become one, with the lower tat
		local nearest = 1
		for i = 2, #kept - 1 do
			if kept[i + 1].tat - kept[i].tat < kept[nearest + 1].tat - kept[nearest].tat then
				nearest = i
			end
		end
		kept[nearest].number = kept[nearest + 1].number
		table.remove(kept, nearest + 1)
	end
	local text = ''
	for _, r in ipairs(kept) do
		text = text .. format(' %d %d', r.number, r.tat)
		if r.part > 0 then
			text = text .. format('+%d', r.part)
		end
	end
	return text
end

function give.meter(key, whole, part, parts, after, afterPart, burst, burstPart, known)
	local tat, tatPart, turns, forget, text = parse(call('GET', key) or '', parts)
	if not tat then
		return
	end
	local till, refunds = tat + (tatPart > 0 and 1 or 0), {}
	local over = till <= now
	for number, at, rest in string.gmatch(text, ' (%d+) (%d+)%+?(%d*)') do
		if #number > 16 or #at > 16 then
			return
		end
		refunds[#refunds + 1] = {number = number + 0, tat = at + 0, part = rest ~= '' and rest + 0 or 0}
	end
	local left, leftPart = after, afterPart
	for _, r in ipairs(refunds) do
		if r.number > known then -- the first such refund has the least tat
			if above(left, leftPart, r.tat, r.part) then
				left, leftPart = r.tat, r.part
			end
			break
		end
	end
	if above(left, leftPart, tat, tatPart) then -- the debt was cut when the clock stepped back
		left, leftPart = tat, tatPart
	end
	left = left - now
	if over or left < 0 or (left == 0 and leftPart == 0) then
		return
	end
	if turns and (tat ~= after or tatPart ~= afterPart) and above(tat - now, tatPart, burst, burstPart) then
		return -- a later turn would come too early
	end
	if above(whole, part, left, leftPart) then
		whole, part = left, leftPart
	end
	till = math.max(till, (match(text, '%d+') or 0) + 0)
	tat, tatPart = less(tat, tatPart, whole, part, parts)
	text = format('!%d', till) .. remember(refunds, known, whole, part, parts, {tat = tat, part = tatPart})
	write(key, tat, tatPart, turns, forget, text)
end

local function counter(key)
	local count, stop = match(call('GET', key) or '', '^(%d+) (%d+)$')
	if count and stop + 0 > now then
		return count + 0, stop + 0
	end
end

local function keep(key, count, stop)
	if count > 0 then
		call('SET', key, format('%d %d', count, stop), 'KEEPTTL')
	else
		call('DEL', key)
	end
end

function give.fixed(key, units, stop, opened)
	local count, ends = counter(key)
	if count and ends == stop and (opened == 0 or count <= units) then
		keep(key, count - units, ends)
	end
end

function give.elastic(key, units, period)
	local count, ends = counter(key)
	if count and now < made + period then
		keep(key, count - units, ends)
	end
end

function give.sliding(key, units, period)
	local members = call('ZRANGE', key, ARGV[1], ARGV[1], 'BYSCORE')
	-- Remove refused attempts of the same instant last: the action itself may have been
	-- dropped for them by a limit with a lower max. memorystore cannot distinguish the two.
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

--@ trail.bytes

local since = 65536 -- the most later entries that move

function give.moving(key, units, period)
	local l = {period = period}
	if not load(l, key) then
		return
	end
	local n = l.n
	-- after is the first entry from low on that is later than at.
	local function after(at, low)
		local high = n
		while low < high do
			local mid = floor((low + high) / 2)
			if instant(l, key, mid) <= at then low = mid + 1 else high = mid end
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
	l.n = n - (to - from)
	if l.n == 0 then
		call('DEL', key)
		return
	end
	if l.start == 0 then
		l.text = string.sub(l.text, 1, width * from) .. string.sub(l.text, width * to + 1)
		l.newest = instant(l, key, l.n - 1)
		set(l, key, l.text)
		return
	end
	-- Move the later entries, in parts if the ring's end is among them.
	local function part(i, k) return math.min(k, l.cap - (l.head + i) % l.cap) end
	local left, bytes = n - to, ''
	while left > 0 do
		local k = part(n - left, left)
		bytes = bytes .. call('GETRANGE', key, int(slot(l, n - left)), int(slot(l, n - left) + width * k - 1))
		left = left - k
	end
	local at = from
	while bytes ~= '' do
		local k = part(at, #bytes / width)
		call('SETRANGE', key, int(slot(l, at)), string.sub(bytes, 1, width * k))
		at, bytes = at + k, string.sub(bytes, width * k + 1)
	end
	l.text = ''
	l.newest = instant(l, key, l.n - 1)
	finish(l, key)
end

for i, key in ipairs(KEYS) do
	local kind, numbers = match(ARGV[i + 1], '^%l+'), {}
	for n in string.gmatch(ARGV[i + 1], '%d+') do
		numbers[#numbers + 1] = n + 0
	end
	if call('TYPE', key).ok == ((kind == 'sliding' or kind == 'refused') and 'zset' or 'string') then
		give[kind](key, unpack(numbers))
	end
end
return 1
