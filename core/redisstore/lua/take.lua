-- Decides charges, one after the other, all at one instant of this server's clock. Numbers are
-- integers below 2^53: microseconds since 1970, counts, parts of a microsecond.
--
-- keys  one for each limit of each charge
-- args  for each charge its word: its mode (0 peek, 1 charge, 2 charge and reply the instant,
--       3 charge what there is room for); "?" if the caller waits when refused, and no limit
--       records the refusal; ":" and how far ahead of its time a meter may admit it; its rules,
--       see protocol.go. Further charges have the word of the last one.
--       If charges are repeated in a row, one more: for each of these "*", its number, ":" and
--       how often it is repeated after the first time.
--
-- It replies for each charge the instant, in mode 2; then for each limit the numbers at the top
-- of its machine's file. For a charge that failed it replies "!" and the error instead. If the
-- whole reply is one value, it is not in an array.

local byte, match, pcall = string.byte, string.match, pcall
local machineOf = require 'machines'

local plans, known, most = {}, 0, 1000 -- by word: what it says. A function keeps them.

local function plan(word)
	local mode, patient, ahead = match(word, '^(%d)(%??):?(%d*)')
	local rules = {
		charging = mode ~= '0', dated = mode == '2', forced = mode == '3', patient = patient ~= '', ahead = tonumber(ahead) or 0,
	}
	for kind, list, mark in string.gmatch(word, ' (%l+) ([%d,]+)(~?)') do
		local machine, shadow = machineOf(kind), mark ~= ''
		local l = machine.args(list, rules, shadow, kind)
		l.machine, l.shadow = machine, shadow
		rules[#rules + 1] = l
	end
	if known == most then
		plans, known = {}, 0
	end
	plans[word], known = rules, known + 1
	return rules
end

-- decide decides a charge several times, appends to the reply, and returns its length.
local function decide(rules, keys, before, times, now, reply, last)
	local n, charging = #rules, rules.charging
	for time = 1, times do
		-- pass is whether all enforced limits have room, and this is no peek; short is whether
		-- a shadow has none.
		local pass, short, banned = charging, false, false
		for i = 1, n do
			local l = rules[i]
			local machine = l.machine
			if time == 1 then
				machine.load(l, keys[before + i], now)
			end
			local fits = machine.check(l, now)
			l.fits = fits
			if not fits then
				if l.shadow then
					short = true
				else
					pass, banned = false, l.bans
				end
			end
		end
		if rules.dated then
			last = last + 1
			reply[last] = now
		end
		for i = 1, n do
			local l = rules[i]
			local machine = l.machine
			if pass and not (short and l.shadow) then
				machine.charge(l, now)
			elseif charging then
				machine.refuse(l, now, not banned, rules.patient and not pass)
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
	if byte(args[words]) == 42 then
		repeats = {}
		for number, times in string.gmatch(args[words], '(%d+):(%d+)') do
			repeats[number + 0] = times + 1
		end
		words = words - 1
	end
	local reply, last, before, charge, rules = {}, 0, 0, 0, nil
	while before < #keys do
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
