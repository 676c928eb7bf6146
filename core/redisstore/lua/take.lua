-- Decides charges, one after the other, all at one instant of this server's clock. Numbers are
-- integers below 2^53: microseconds since 1970, counts, parts of a microsecond.
--
-- Its keys, its arguments and its reply are in protocol.go. All subjects of a charge pass, or none does.
--
-- decide is Check and Commit of charge.go, for all charges: the limits of a charge are loaded and checked. If they
-- have room, each is charged. If not, each may record the refusal. Then the reading of each is replied, and each that
-- has changed is saved. A charge that is repeated is loaded before the first time and saved after the last.
--
-- The functions of a machine mean what they mean in Go. Their arguments are in the same order:
--
--   r     the rule: what a word says of a limit, but for its cost
--   now   the instant of the run
--   cost  of a meter the time that the cost takes, whose part is s.costPart; of a ban policy the length of a ban by hand
--   a     the ask: what a word says of all its limits
--   s     the entry: the state, fits and dirty. A function changes it, where in Go it returns another state
--
-- A function on the server keeps a and s with the word, and load sets all of the state anew. No field of s becomes nil,
-- since its table would then shrink and grow.
--
--   args(kind, first, second, third, rest)
--                                       returns s, with r as s.rule and cost as s.cost, of what args of forms.go has sent:
--                                       three numbers as text, each "" if there are fewer, and the others in one text
--   load(r, key, now, s)
--   check(r, now, cost, a, s)           returns whether the rule has room
--   charge(r, now, cost, a, s, number)  number is that of the first slot that it takes
--   refuse(r, now, cost, record, s)     does not record a cost above the quota, which in Go Rule.Refuse finds out
--   read(r, now, cost, s, reply, last, amendable)
--                                       appends to the reply, and returns its new length
--   amendArgs(kind, made, ...)          returns r, t and a, of the numbers that amendArgs of forms.go has sent
--   amend(r, now, t, a, s, key)         a is how much is given back, of a meter a time; of slots whether they are
--                                       renewed. It saves s too
--   save(r, key, now, s)
--
-- parse sets s.machine, r.shadow and r.failures, for which args has left room: a script parses in each run, so it makes
-- few tables, and none larger after it has made it.

local clock = require 'clock'
local parsed, known = {}, 0 -- by word: what it says. A function keeps up to 1,000.

-- parse reads a word: the ask, and its entries, one for each limit. first says which of them are the first ones of a
-- further subject. takes says whether the charge may take slots. why says whether it matters which limits have no room:
-- it does if one records refusals or is a shadow.
local function parse(word)
	local mode, patient, ahead, at = string.match(word, '^(%l)(%??):?(%d*)()')
	local n, entries, first, takes, why = 0, {false}, false, false, false
	repeat
		local further, kind, one, two, three, rest, mark, failures, after = string.match(word, '^ (&?)(%l+) (%d+),?(%d*),?(%d*)([%d,]*)(~?)(!?)()', at)
		local machine = require(kind)
		local s = machine.args(kind, one, two, three, rest)
		local r = s.rule
		s.machine, r.shadow, r.failures = machine, mark ~= '', failures ~= ''
		n, at = n + 1, after
		entries[n] = s
		if further ~= '' then
			first = first or {}
			first[n] = true
		end
		why = why or r.shadow or r.keep or r.records
		takes = takes or machine.slots and (mode == 'c' or mode == 'r')
	until at > #word
	if known == 1000 then parsed, known = {}, 0 end
	local ask = {
		charging = mode ~= 'p', patient = patient ~= '', ahead = ahead ~= '' and ahead + 0 or 0, amendable = mode == 'r',
		forced = mode == 'f' or mode == 'o', quotas = mode == 'o' and 2 or 1, -- the most that a forced ask leaves
		n = n, entries = entries, first = first, takes = takes, why = why,
	}
	parsed[word], known = ask, known + 1
	return ask
end

-- lacking says which limits of a subject have no room: a shadow limit, a limit that is not InFlight, or a ban policy.
-- The subject's first limit is the i-th of the charge.
local function lacking(ask, i)
	local short, limited, banned = false, false, false
	repeat
		local s = ask.entries[i]
		if not s.fits then
			if s.rule.shadow then
				short = true
			elseif s.rule.bans then
				banned = true
			elseif not s.machine.slots then
				limited = true
			end
		end
		i = i + 1
	until i > ask.n or ask.first and ask.first[i]
	return short, limited, banned
end

-- records reports whether a rule records that its charge does not pass: records of commit.go, with the conditions of
-- Rule.Refuse. During a ban no rule does. A ban policy does if a limit of its subject has refused.
local function records(r, s, ask, passes, limited, banned)
	if banned or r.bans and not limited or not r.bans and s.fits then
		return false
	end
	return r.keep or r.records and (passes or not ask.patient)
end

-- decide decides the charges that are not done yet. If there is only one, done is nil: a table for each run would cost
-- 4 % of a charge.
local function decide(keys, args, words, repeats, slots, now, reply, done)
	local number, before, size = 0, 0, 0
	if done then
		number, before, size = done.charges, done.keys, done.replied
	end
	while before < #keys do
		number = number + 1
		local word = args[number < words and number or words]
		local ask = parsed[word] or parse(word)
		local entries, n, first, times = ask.entries, ask.n, ask.first, repeats and repeats[number] or 1
		local charging, amendable, taken = ask.charging, ask.amendable, 0
		if slots and ask.takes then
			taken, slots.taken = slots.taken, slots.taken + times
		end
		for time = 1, times do
			local passes, roomy = charging, true
			for i = 1, n do
				local s = entries[i]
				local machine, r = s.machine, s.rule
				if time == 1 then
					s.dirty = false
					machine.load(r, keys[before + i], now, s)
				end
				local fits = machine.check(r, now, s.cost, ask, s)
				s.fits = fits
				if not fits then
					passes, roomy = passes and r.shadow, false
				end
			end
			if amendable then
				size = size + 1
				reply[size] = now
			end
			local short, limited, banned
			for i = 1, n do
				local s = entries[i]
				local machine, r, cost = s.machine, s.rule, s.cost
				if not roomy and ask.why and (i == 1 or first and first[i]) then
					short, limited, banned = lacking(ask, i)
				end
				if passes and not (short and r.shadow) then
					if not r.failures or ask.forced then machine.charge(r, now, cost, ask, s, slots and slots[taken + time]) end
				elseif charging then -- what passes may still be refused by a shadow limit
					machine.refuse(r, now, cost, records(r, s, ask, passes, limited, banned), s)
				end
				size = machine.read(r, now, cost, s, reply, size, amendable)
			end
		end
		for i = 1, n do
			local s = entries[i]
			if s.dirty and charging then
				s.machine.save(s.rule, keys[before + i], now, s)
			end
		end
		before = before + n
		if done then
			done.charges, done.keys, done.replied = number, before, size
		end
	end
end

-- fail replies the error of the charge at which decide has ended, which is then done.
local function fail(problem, args, words, repeats, reply, done)
	problem = '!' .. (type(problem) == 'table' and problem.err or tostring(problem))
	local number, replied = 1, 0
	if done then
		number, replied = done.charges + 1, done.replied
	end
	local times = repeats and repeats[number] or 1
	while #reply > replied do reply[#reply] = nil end
	for _ = 1, times do
		reply[#reply + 1] = problem
	end
	local ask = parsed[args[math.min(number, words)]] or error(problem, 0) -- no word of this store
	if done then
		done.charges, done.keys, done.replied = number, done.keys + ask.n, #reply
	end
	-- A replica has written nothing, and the client then leaves it. Redis 6.2 puts the line first.
	return string.match(problem, '^!(READONLY.*)') or string.match(problem, '^!@[^-]*%-(READONLY.*)')
end

return function(keys, args)
	local now, words, repeats, slots, done, reply = clock(), #args, nil, nil, nil, {}
	if words > 1 and string.sub(args[words], 1, 1) == '=' then
		slots = require('state').numbers(args[words])
		slots.taken = 0
		words = words - 1
	end
	if words > 1 and string.sub(args[words], 1, 1) == '*' then
		repeats = {}
		for at, times in string.gmatch(args[words], '(%d+):(%d+)') do
			repeats[at + 0] = times + 1
		end
		words = words - 1
	end
	if #keys > (parsed[args[1]] or parse(args[1])).n then
		done = {charges = 0, keys = 0, replied = 0}
	end
	-- An error fails one charge, and decide goes on after it. A pcall for each charge would cost more.
	while true do
		local ok, problem = pcall(decide, keys, args, words, repeats, slots, now, reply, done)
		local replica = not ok and fail(problem, args, words, repeats, reply, done)
		if replica then return redis.error_reply(replica) end
		if ok or not done then return #reply == 1 and reply[1] or reply end
	end
end
