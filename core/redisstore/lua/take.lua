-- Decides charges, one after the other, all at one instant of this server's clock. Numbers are
-- integers below 2^53: microseconds since 1970, counts, parts of a microsecond.
--
-- keys  one for each limit of each charge
-- args  for each charge its word: its mode (0 peek, 1 charge, 2 charge and reply the instant,
--       3 charge what there is room for, 4 charge above the quota too); "?" if the caller waits
--       when refused, and no limit records the refusal; ":" and how far ahead of its time a
--       meter may admit it; its rules, see protocol.go. A rule with "&" is the first of a
--       further subject: all subjects of a charge pass, or none does. Further charges have the
--       word of the last one.
--       If charges are repeated in a row, one more: for each of these "*", its number, ":" and
--       how often it is repeated after the first time.
--
-- It replies for each charge the instant, in mode 2; then for each limit the numbers at the top
-- of its machine's file. For a charge that failed it replies "!" and the error instead. If the
-- whole reply is one value, it is not in an array.

local match, pcall = string.match, pcall
local machineOf = require 'machines'

local plans, known = {}, 0 -- by word: what it says. A function keeps up to 1,000.

-- plan reads a word. A machine's args gets the first three numbers of its rule as text, each "" if
-- there are fewer, and the others in one text.
local function plan(word)
	local mode, patient, ahead, at = match(word, '^(%d)(%??):?(%d*)()')
	local subject = {}
	local rules = {
		charging = mode ~= '0', dated = mode == '2', forced = mode == '3' or mode == '4', owes = mode == '4', patient = patient ~= '', ahead = tonumber(ahead) or 0,
		subjects = {subject},
	}
	repeat
		local further, kind, first, second, third, more, mark, next = match(word, '^ (&?)(%l+) (%d+),?(%d*),?(%d*)([%d,]*)(~?)()', at)
		if further ~= '' then
			subject = {}
			rules.subjects[#rules.subjects + 1] = subject
		end
		local machine, shadow = machineOf(kind), mark ~= ''
		local l = machine.args(rules, kind, shadow, first, second, third, more)
		l.machine, l.shadow, l.subject = machine, shadow, subject
		rules[#rules + 1], at = l, next
	until at > #word
	if known == 1000 then plans, known = {}, 0 end
	plans[word], known = rules, known + 1
	return rules
end

-- decide decides a charge several times, appends to the reply, and returns its length.
local function decide(rules, keys, before, times, now, reply, last)
	local n, charging, subjects = #rules, rules.charging, rules.subjects
	for time = 1, times do
		-- pass is whether all enforced limits have room, and this is no peek. short is whether a
		-- shadow limit of a subject has none, and limited whether a limit other than InFlight refuses.
		local pass = charging
		for i = 1, #subjects do
			local s = subjects[i]
			s.short, s.limited, s.banned = false, false, false
		end
		for i = 1, n do
			local l = rules[i]
			local machine = l.machine
			if time == 1 then
				machine.load(l, keys[before + i], now)
			end
			local fits = machine.check(l, now)
			l.fits = fits
			if not fits then
				local s = l.subject
				if l.shadow then
					s.short = true
				elseif l.bans then
					pass, s.banned = false, true
				else
					pass, s.limited = false, s.limited or not machine.slots
				end
			end
		end
		if rules.dated then
			last = last + 1
			reply[last] = now
		end
		for i = 1, n do
			local l = rules[i]
			local machine, s = l.machine, l.subject
			if pass and not (s.short and l.shadow) then
				machine.charge(l, now)
			elseif charging then
				machine.refuse(l, now, not s.banned and (s.limited or not l.bans), rules.patient and not pass)
			end
			last = machine.read(l, reply, last, now)
		end
	end
	for i = 1, n do
		local l = rules[i]
		if l.dirty and charging then
			l.machine.save(l, keys[before + i], now)
		end
	end
	return last
end

return function(keys, args)
	local time = redis.call('TIME')
	local now = time[1] * 1000000 + time[2]
	local words, repeats = #args, nil
	if words > 1 and string.byte(args[words]) == 42 then
		repeats = {}
		for number, times in string.gmatch(args[words], '(%d+):(%d+)') do
			repeats[number + 0] = times + 1
		end
		words = words - 1
	end
	local reply, last, before, charge, rules, all = {}, 0, 0, 0, nil, #keys
	while before < all do
		charge = charge + 1
		if charge <= words then
			rules = plans[args[charge]] or plan(args[charge])
		end
		local times = repeats and repeats[charge] or 1
		local ok, result = pcall(decide, rules, keys, before, times, now, reply, last)
		if ok then
			last = result
		else
			local problem = '!' .. (type(result) == 'table' and result.err or tostring(result))
			-- A replica has written nothing, and the client then leaves it. Redis 6.2 puts the line first.
			local replica = match(problem, '^!(READONLY.*)') or match(problem, '^!@[^-]*%-(READONLY.*)')
			if replica then return redis.error_reply(replica) end
			for i = #reply, last + 1, -1 do
				reply[i] = nil
			end
			for _ = 1, times do
				last = last + 1
				reply[last] = problem
			end
		end
		before = before + #rules
	end
	return last == 1 and reply[1] or reply
end
