-- Decides charges, one after the other. For each it checks every limit and then writes every
-- state, all at one instant of this server's clock. Numbers are integers below 2^53:
-- microseconds since 1970, counts, parts of a microsecond. Only %d turns them into text.
--
-- KEYS   one for each limit of each charge
-- ARGV   one for each charge: its mode (0 peek, 1 charge, 2 charge and reply the instant,
--        3 charge what there is room for); ":" and how far ahead of its time a meter may admit
--        it, if at all; then for each limit " ", the arguments at the top of its machine's
--        file, and "~" if it is rehearsed. Last, if some charges are repeated in a row, for
--        each of these "*", its number, ":" and how often it is repeated
-- reply  for each charge the instant, in mode 2; then for each limit the numbers at the top of
--        its machine's file. For a charge that failed "!" and the error instead. If that is
--        one value, it is not in an array.
--
-- A line "--@ machine.part" inserts that part of the machine's file. A script keeps nothing
-- between runs, so it avoids allocation: functions are made on first use.

local try, KEYS, ARGV, string = redis.pcall, KEYS, ARGV, string
local format, find, match = string.format, string.find, string.match
local NONSENSE = 'TAILCUTSTATE: the key holds something that is not a state'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local reply, last = {}, 0

local charge, from, count = 0, 0, #ARGV -- the current charge, the keys before its own, the number of charges
local words, limits, mode, ahead -- the arguments of the current charge, and their meaning
local n = 0 -- how many limits it has
local plans -- limits by words, if there are several charges
local repeats -- by charge: how often it is repeated
local rare, log, ring, bans -- methods, made on first use

-- Modes, as bytes.
local PEEK, DATED, FORCED = 48, 50, 51

-- A limit is an array: making it takes a third of the time of a table with names. Each machine
-- names its fields from 7 on. The limits of a charge are a list: NEXT is the next one. SIZE, of
-- the first, is how many there are. It is set if there are several charges.
local MACHINE, SHADOW, FITS, CHANGED, NEXT, SIZE = 1, 2, 3, 4, 5, 6
local METER, COUNTER, OTHER = 1, 2, 3
--@ meter.fields
--@ counter.fields

-- The current limit and its state. If there are several limits, the states are kept in the
-- limits' arrays. For a single limit that would double the time.
local l, machine, key, fits, changed
--@ meter.state
--@ counter.state

if count > 1 and string.byte(ARGV[count]) == 42 then
	repeats = {}
	for number, times in string.gmatch(ARGV[count], '(%d+):(%d+)') do
		repeats[number + 0] = times + 0
	end
	count = count - 1
end

while charge < count do
	charge, from = charge + 1, from + n
	if ARGV[charge] ~= words then
		words = ARGV[charge]
		local colon, at
		mode, colon = string.byte(words, 1, 2)
		at, ahead = 2, 0
		if colon == 58 then
			ahead, at = match(words, '^(%d+)()', 3)
			ahead = ahead + 0
		end
		limits = plans and plans[words]
		if limits then
			n = limits[SIZE]
		else
			n = 0
			repeat
				local kind, a, b, c, rest, next = match(words, '^ (%l+) (%d+),(%d+),(%d+)([,%d~]*)()', at)
				local shadow, before = rest ~= '' and find(rest, '~', 1, true) and true or false, l
				if kind == 'meter' or kind == 'initial' then
					--@ meter.parse
				elseif kind == 'fixed' or kind == 'elastic' then
					--@ counter.parse
				elseif kind == 'ban' then
					bans = bans or (function()
						--@ ban.methods
					end)()
					--@ ban.parse
				elseif kind == 'moving' then
					ring = ring or (function()
						--@ trail.ring
					end)()
					--@ trail.parse
				else
					log = log or (function()
						--@ trail.log
					end)()
					--@ trail.parse
				end
				if n == 0 then
					limits = l
				else
					before[NEXT] = l
				end
				n, at = n + 1, next
			until at > #words
			if count > 1 then
				plans = plans or {}
				plans[words] = limits
				limits[SIZE] = n
			end
		end
	end

	-- A repeated charge is read the first time and written the last time.
	local left = repeats and repeats[charge] or 0
	local equal, start, since = false, last, left
	repeat
		-- Check. pass is whether all enforced limits have room, and rehearsed whether all
		-- rehearsed ones have.
		local pass, rehearsed, banned, again, problem = true, true, false, equal, nil
		equal = left > 0
		local at = from
		l = limits
		repeat
			at = at + 1
			key = KEYS[at]
			machine = l[MACHINE]
			if machine == METER then
				--@ meter.check
			elseif machine == COUNTER then
				--@ counter.check
			else
				local ok
				equal, ok, fits = false, pcall(l.check, l, key)
				if not ok then
					problem = fits
					break
				end
			end
			l[FITS] = fits
			if not fits then
				if l[SHADOW] then
					rehearsed = false
				else
					pass, banned = false, l.bans -- the ban policy is the last
				end
			end
			l = l[NEXT]
		until not l

		if repeats and not again then
			start, since = last, left
		end
		if not problem then
			if mode == DATED then
				last = last + 1
				reply[last] = now
			end
			at = from
			l = limits
			repeat
				if n > 1 then
					at = at + 1
					key = KEYS[at]
					machine, fits = l[MACHINE], l[FITS]
				end
				local all = pass and mode ~= PEEK and (rehearsed or not l[SHADOW])
				if machine == METER then
					--@ meter.charge
				elseif machine == COUNTER then
					--@ counter.charge
				else
					local ok, a, b, c, d = pcall(l.charge, l, key, mode ~= PEEK, all, not banned and not fits, not banned and not pass)
					if not ok then
						problem = a
						break
					end
					reply[last + 1], reply[last + 2], reply[last + 3] = a, b, c
					last = last + 3
					if d then
						last = last + 1
						reply[last] = d
					end
				end
				l = l[NEXT]
			until not l
		end
		if problem then -- if a write fails, all repeats since the last read fail
			problem = '!' .. (type(problem) == 'table' and problem.err or tostring(problem))
			for i = last, start + 1, -1 do
				reply[i] = nil
			end
			last, equal = start + since - left + 1, false
			for i = start + 1, last do
				reply[i] = problem
			end
		end
		left = left - 1
	until left < 0
end

return last == 1 and reply[1] or reply
