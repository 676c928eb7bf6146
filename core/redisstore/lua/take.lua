-- Decides charges, one after the other, all at one instant of this server's clock. Numbers are
-- integers below 2^53: microseconds since 1970, counts, parts of a microsecond.
--
-- Its keys, its arguments and its reply are in protocol.go. All subjects of a charge pass, or none does.
--
-- decide is Check and Commit of charge.go, for all charges: the limits of a charge are loaded and checked. If they
-- have room, each is charged. If not, each may record the refusal. Then the reading of each is replied, and each that
-- has changed is saved. A charge that is repeated is loaded before the first time and saved after the last.
--
-- What Go has in a Rule, an Ask and an Entry is in one table here, l, which a function keeps with the word. args of
-- the machine sets the numbers of the rule and of the ask, and load sets those of the state anew. Other differences to
-- charge.go and rule.go:
--
--   spared                  Failures, unless the mode is forced
--   refuse                  each machine has the conditions of Rule.Refuse itself
--   read                    it appends to the reply
--   short, limited, banned  of a subject: its first limit has the number of the last decision in which they were true

local clock = require 'clock'
local parsed, known = {}, 0 -- by word: what it says. A function keeps up to 1,000.
local decision = 0 -- its number, in all runs of a function

-- parse reads a word. A machine's args gets the first three numbers of its rule as text, each "" if
-- there are fewer, and the others in one text.
local function parse(word)
	local mode, patient, ahead, at = string.match(word, '^(%l)(%??):?(%d*)()')
	local rules, subject = {mode = mode, patient = patient ~= '', ahead = ahead ~= '' and ahead + 0 or 0}, nil
	rules.forced = mode == 'f' or mode == 'o' or nil
	repeat
		local further, kind, first, second, third, rest, mark, failures, after = string.match(word, '^ (&?)(%l+) (%d+),?(%d*),?(%d*)([%d,]*)(~?)(!?)()', at)
		local machine, shadow = require(kind), mark ~= ''
		local l = machine.args(rules, kind, shadow, first, second, third, rest)
		subject = further == '' and subject or l -- its first limit, where its notes are
		rules.takes = rules.takes or machine.slots and (mode == 'c' or mode == 'r')
		l.machine, l.shadow, l.subject = machine, shadow, subject
		l.spared = failures ~= '' and not rules.forced
		rules[#rules + 1], at = l, after
	until at > #word
	if known == 1000 then parsed, known = {}, 0 end
	parsed[word], known = rules, known + 1
	return rules
end

-- The number of the current charge, and how many keys, values of the reply and charges that take slots are before it.
-- A table of them for each run would cost 8 % of a charge of a FixedWindow.
local number, keysBefore, replied, slotsBefore

-- decide decides the charges from the current one on.
local function decide(keys, args, words, repeats, slots, now, reply)
	while keysBefore < #keys do
		local word = args[number < words and number or words]
		local rules = parsed[word] or parse(word)
		local n, mode, size, times = #rules, rules.mode, replied, repeats and repeats[number] or 1
		local charging, first = mode ~= 'p', slotsBefore
		if rules.takes then slotsBefore = first + times end
		for time = 1, times do
			-- pass is whether all enforced limits have room, and this is no peek. A subject is short if
			-- one of its shadow limits has none, and limited if a limit other than InFlight refuses.
			local pass, short = charging, false
			decision = decision + 1
			for i = 1, n do
				local l = rules[i]
				local machine = l.machine
				if time == 1 then
					l.dirty = false
					machine.load(l, keys[keysBefore + i], now)
				end
				local fits = machine.check(l, now)
				l.fits = fits
				if not fits then
					local s = l.subject
					if l.shadow then
						short, s.short = true, decision
					elseif l.bans then
						pass, s.banned = false, decision
					else
						pass = false
						if not machine.slots then s.limited = decision end
					end
				end
			end
			if mode == 'r' then
				size = size + 1
				reply[size] = now
			end
			for i = 1, n do
				local l = rules[i]
				local machine = l.machine
				if pass and not (short and l.shadow and l.subject.short == decision) then
					if not l.spared then machine.charge(l, now, slots and slots[first + time]) end
				elseif charging then
					local s = l.subject
					machine.refuse(l, now, s.banned ~= decision and (s.limited == decision or not l.bans), rules.patient and not pass)
				end
				size = machine.read(l, reply, size, now)
			end
		end
		for i = 1, n do
			local l = rules[i]
			if l.dirty and charging then l.machine.save(l, keys[keysBefore + i], now) end
		end
		number, keysBefore, replied = number + 1, keysBefore + n, size
	end
end

-- fail replies the error of the charge at which decide has ended, and goes on to the next.
local function fail(problem, args, words, repeats, reply)
	problem = '!' .. (type(problem) == 'table' and problem.err or tostring(problem))
	while #reply > replied do reply[#reply] = nil end
	for _ = 1, repeats and repeats[number] or 1 do
		reply[#reply + 1] = problem
	end
	local rules = parsed[args[math.min(number, words)]] or error(problem, 0) -- no word of this store
	number, keysBefore, replied = number + 1, keysBefore + #rules, #reply
	-- A replica has written nothing, and the client then leaves it. Redis 6.2 puts the line first.
	return string.match(problem, '^!(READONLY.*)') or string.match(problem, '^!@[^-]*%-(READONLY.*)')
end

return function(keys, args)
	local now, words, repeats, slots, reply = clock(), #args, nil, nil, {}
	if words > 1 and string.sub(args[words], 1, 1) == '=' then
		slots = require('state').numbers(args[words])
		words = words - 1
	end
	if words > 1 and string.sub(args[words], 1, 1) == '*' then
		repeats = {}
		for at, times in string.gmatch(args[words], '(%d+):(%d+)') do
			repeats[at + 0] = times + 1
		end
		words = words - 1
	end
	number, keysBefore, replied, slotsBefore = 1, 0, 0, 0
	-- An error fails one charge, and decide goes on after it. A pcall for each charge would cost more.
	while true do
		local ok, problem = pcall(decide, keys, args, words, repeats, slots, now, reply)
		if ok then return #reply == 1 and reply[1] or reply end
		local replica = fail(problem, args, words, repeats, reply)
		if replica then return redis.error_reply(replica) end
	end
end
