-- This program decides charges one after the other, all at one instant of this server's clock. All
-- subjects of a charge pass, or none of them passes. Numbers are integers below 2^53: microseconds
-- since 1970, counts, parts of a microsecond.
--
-- protocol.go says what the keys, the arguments and the reply are.

-- decide does for all charges what Check and Commit do in Go for one charge. It loads and checks
-- the limits of a charge. If the limits have room, it charges them, unless the charge is a peek. If
-- a limit has no room, limits may record the refusal. Then decide replies the reading of each
-- limit, and saves each state that has changed. If a charge is repeated, its states are loaded
-- before the first time and saved after the last time.

-- Most functions of a machine do what the methods of the same names do in Go, and have their
-- arguments in the same order:
--
--   r     the rule: what a word says of a limit, except for its cost
--   now   the instant of the run
--   cost  the cost. Of a meter it is the time that the cost takes, and s.costPart is its part. Of a
--         ban policy it is the length of a manual ban
--   a     the ask: what a word says of all its limits
--   s     the entry: the state, fits and dirty. A function changes it. In Go it returns another
--         state
--
-- If the program runs as a function of the library, it may keep a and s for later runs with the
-- same word. In each run load sets all fields of the state anew. No function sets a field of s to
-- nil, because Lua may have to enlarge the table when the field is set again.

-- The functions of a machine have these arguments:
--
--   args(kind, first, second, third, rest)
--       returns s, with r in s.rule and the cost in s.cost. It gets the numbers that args of
--       forms.go has sent. Each of the first three is a text, or "" if there are fewer numbers. All
--       others are in the text rest
--   load(r, key, now, s)
--   check(r, now, cost, a, s)
--       returns whether the rule has room
--   charge(r, now, cost, a, s, number)
--       number is the number of the first slot that the charge takes
--   refuse(r, now, cost, record, s)
--       does not record a cost above the quota. In Go Rule.Refuse makes sure of that
--   read(r, now, cost, s, reply, last, amendable)
--       appends to the reply, and returns its new length
--   amendArgs(kind, made, ...)
--       makes r, t and a of the numbers that amendArgs of forms.go has sent, and returns them. t is
--       Taken in Go. made is the instant of the charge. a is how many units are given back. For a
--       meter a is how much time is given back, and for slots a is whether they are renewed
--   amend(r, now, t, a, s, key)
--       saves s too
--   save(r, key, now, s)
--
-- The function args makes the fields s.machine, r.shadow and r.failures, and the function parse
-- sets them. A script parses in each run. Therefore it makes few tables, and most of them do not
-- grow.

local clock = require 'clock'
local parsed, known = {}, 0 -- what parse has returned for each word, up to 1,000 of them, and how many they are

-- parse reads a word. It returns the ask, which has an entry for each limit. The field first of the
-- ask says which entries are the first of a further subject. The field takes says whether the
-- charge may take slots. The field why is true if a limit records refusals or is a shadow. Only
-- then decide needs to know which limits have no room.
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
		forced = mode == 'f' or mode == 'o', quotas = mode == 'o' and 2 or 1, -- how many quotas a forced charge may leave at most
		n = n, entries = entries, first = first, takes = takes, why = why,
	}
	parsed[word], known = ask, known + 1
	return ask
end

-- lacking returns three booleans about the limits of a subject. short says whether a shadow limit
-- has no room. limited says whether an enforced limit that is neither an InFlight nor a ban policy
-- has no room. banned says whether an enforced ban policy refuses. The first limit of the subject
-- is the i-th of the charge.
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

-- records reports whether a rule records that it has no room for the charge. In Go these conditions
-- are in the function records and in Rule.Refuse. While the user is banned, no rule records. A ban
-- policy records only if another enforced limit of its subject, which is no InFlight, has no room.
local function records(r, s, ask, passes, limited, banned)
	if banned or r.bans and not limited or not r.bans and s.fits then
		return false
	end
	return r.keep or r.records and (passes or not ask.patient)
end

-- decide decides the charges that have not been decided yet. The table done says how many charges,
-- keys and numbers of the reply are done. If there is only one charge, done is nil, because a table
-- for each run would cost 4 % of a charge.
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
				elseif charging then -- a shadow limit may have no room for a charge that passes
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

-- fail replies an error for the charge at which decide has failed, and notes that this charge is
-- decided.
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
	local ask = parsed[args[math.min(number, words)]] or error(problem, 0) -- the word is not from this store
	if done then
		done.charges, done.keys, done.replied = number, done.keys + ask.n, #reply
	end
	-- If this server is a replica, it has written nothing, and the client should leave it. So the
	-- whole command fails. Redis 6.2 puts the line number before the error.
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
	-- An error fails one charge, and decide goes on with the next one. A pcall for each charge
	-- would cost more, so one pcall runs decide until an error.
	while true do
		local ok, problem = pcall(decide, keys, args, words, repeats, slots, now, reply, done)
		local replica = not ok and fail(problem, args, words, repeats, reply, done)
		if replica then return redis.error_reply(replica) end
		if ok or not done then return #reply == 1 and reply[1] or reply end
	end
end
