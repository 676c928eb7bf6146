-- Decides charges, one after the other. For each it checks every limit and then writes every
-- state, all at one instant of this server's clock. Numbers are integers below 2^53:
-- microseconds since 1970, counts, parts of a microsecond. Only %d turns them into text, and
-- drops a fraction.
--
-- KEYS   one for each limit of each charge
-- ARGV   one for each charge; further charges have the arguments of the last one:
--          its mode: 0 peek, 1 charge, 2 charge and reply the instant, 3 charge what there is room for
--          if the caller waits when refused, and no limit records the refusal, "?"
--          if a meter may admit it ahead of its time, ":" and how far
--          for each limit " ", the arguments at the top of its machine's file, and "~" if it is rehearsed
--        If charges are repeated in a row, one more: for each of these "*", its number, ":" and how
--        often it is repeated after the first time.
--        If the only charge is a lone meter's, its two arguments instead; see meter.lua.
-- reply  for each charge the instant, in mode 2; then for each limit the numbers at the top of
--        its machine's file. For a charge that failed "!" and the error instead. A charge
--        that is repeated has a reply each time. If the whole reply is one value, it is not in
--        an array.
--
-- A line "--@ machine.part" inserts that part of the machine's file. A script keeps nothing
-- between runs, so it avoids allocation: functions are made on first use.

local try, KEYS, ARGV, string = redis.pcall, KEYS, ARGV, string
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--@ meter.lone

local format, find, match = string.format, string.find, string.match
local NONSENSE = 'TAILCUTSTATE: the key holds something that is not a state'

local reply, last = {}, 0

local keys, given = #KEYS, #ARGV -- how many keys there are, and how many charges have arguments of their own
local charge, from = 0, 0 -- the current charge, and the keys before its own
local left, hold = 0, false -- how often it is still repeated, and whether its states are written only then
local words, mode, charging, patient, ahead -- its arguments, and their meaning
local first, n, several -- its first limit's array, how many limits it has, and whether it has several
local plans -- first limits by words, if there are several words
local repeats -- by charge: how often it is repeated
local rare, log, ring, bans -- methods, made on first use

-- Modes, as bytes.
local PEEK, DATED, FORCED = 48, 50, 51

-- The current limit: its arguments and its state.
local machine, shadow, key, fits, changed
--@ meter.state
--@ counter.state

-- A limit also has an array, unless the only key is a counter's or a plain meter's: that saves
-- 4 %.
-- In each machine's file, load reads the arguments from it; if a charge has several limits,
-- keep and resume store the state there and read it again. An array takes a third of the time
-- of a table with names. A machine's own fields begin at 7. NEXT is the charge's next limit,
-- and the first one after the last. SIZE, of the first, is how many there are.
local l, loaded -- the current limit's array, and the last one that was loaded
local MACHINE, SHADOW, FITS, CHANGED, NEXT, SIZE = 1, 2, 3, 4, 5, 6
local METER, COUNTER, OTHER = 1, 2, 3
--@ meter.fields
--@ counter.fields

if given > 1 and string.byte(ARGV[given]) == 42 then
	repeats = {}
	for number, times in string.gmatch(ARGV[given], '(%d+):(%d+)') do
		repeats[number + 0] = times + 0
	end
	given = given - 1
end

while from < keys do
	charge = charge + 1
	if charge <= given and ARGV[charge] ~= words then
		words = ARGV[charge]
		local colon, at
		mode, colon = string.byte(words, 1, 2)
		charging = mode ~= PEEK
		at = 2
		ahead = 0
		patient = colon == 63
		if patient then
			at = 3
			colon = string.byte(words, at)
		end
		if colon == 58 then
			ahead, at = match(words, '^(%d+)()', at + 1)
			ahead = ahead + 0
		end
		first = plans and plans[words]
		if first then
			n = first[SIZE]
		else
			n = 0
			repeat
				local kind, a, b, c, rest, next = match(words, '^ (%l+) (%d+),(%d+),(%d+)([,%d~]*)()', at)
				local before = l
				shadow = rest ~= '' and find(rest, '~', 1, true) and true or false
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
				elseif kind == 'sliding' or kind == 'refused' then
					log = log or (function()
						--@ trail.log
					end)()
					--@ trail.parse
				else
					error('no such kind: ' .. words)
				end
				if n == 0 then
					first = l
				else
					before[NEXT] = l
				end
				n = n + 1
				at = next
			until at > #words
			if n > 1 then
				l[NEXT] = first
			end
			if given > 1 then
				plans = plans or {}
				plans[words] = first
				first[SIZE] = n
			end
		end
		several = n > 1
	end

	-- Repeated charges of meters and counters are read the first time and written the last time.
	local start, unwritten = last, 0 -- the reply before the last read, and the charges since then
	if repeats and repeats[charge] then
		left, hold = repeats[charge], true
	end
	while true do
		-- Check. pass is whether all enforced limits have room, and this is no peek; short is
		-- whether a rehearsed one has none.
		local pass, short, banned, problem = charging
		local at = from + 1
		l = first
		repeat
			if l ~= loaded then
				loaded = l
				machine = l[MACHINE]
				shadow = l[SHADOW]
				if machine == METER then
					--@ meter.load
				elseif machine == COUNTER then
					--@ counter.load
				end
			end
			key = KEYS[at]
			if machine == METER then
				--@ meter.check
			elseif machine == COUNTER then
				--@ counter.check
			else
				local ok
				hold, ok, fits = false, pcall(l.check, l, key)
				if not ok then
					problem = fits
					break
				end
				l[FITS] = fits
			end
			if not fits then
				if shadow then
					short = true
				else
					pass, banned = false, machine == OTHER and l.bans -- the ban policy is the last
				end
			end
			if not several then
				break
			end
			l[FITS] = fits
			at = at + 1
			l = l[NEXT]
		until l == first

		local unrecorded = banned or patient and not pass
		if not problem then
			if mode == DATED then
				last = last + 1
				reply[last] = now
			end
			repeat
				if several then
					key = KEYS[at - n]
					at = at + 1
					fits = l[FITS]
					machine = l[MACHINE]
				end
				local all = pass and not (short and (not several or l[SHADOW]))
				if machine == METER then
					--@ meter.charge
				elseif machine == COUNTER then
					--@ counter.charge
				else
					local ok, a, b, c, d = pcall(l.charge, l, key, charging, all, not unrecorded and not fits, not unrecorded and not pass)
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
				if not several then
					break
				end
				l = l[NEXT]
			until l == first
		end
		if problem then -- if a write fails, all charges since the last read fail
			problem = '!' .. (type(problem) == 'table' and problem.err or tostring(problem))
			-- A replica has written nothing, and the client then leaves it. Redis 6.2 puts the line first.
			local replica = match(problem, '^!(READONLY.*)') or match(problem, '^!@[^-]*%-(READONLY.*)')
			if replica then
				return redis.error_reply(replica)
			end
			for i = last, start + 1, -1 do
				reply[i] = nil
			end
			last, hold = start + unwritten + 1, false
			for i = start + 1, last do
				reply[i] = problem
			end
		end
		if left == 0 then
			break
		end
		if hold then
			unwritten = unwritten + 1
		else
			start, unwritten = last, 0
		end
		left = left - 1
		hold = left > 0
	end
	from = from + n
end

return last == 1 and reply[1] or reply
