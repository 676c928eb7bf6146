-- Decides charges, one after the other. Of each it checks every limit and then moves every
-- state, all at one instant of this server's clock. Numbers are integers below 2^53:
-- microseconds since 1970, counts, parts of a microsecond. They become text by %d alone.
--
-- KEYS   one for each limit of each charge
-- ARGV   one for each charge: its mode (0 peek, 1 charge, 2 charge and say when, 3 charge
--        what there is room for); ":" and how far ahead of its time a meter may admit it, if
--        at all; then for each limit " ", "~" if it is only rehearsed, and the words that
--        its machine's file begins with
-- reply  for each charge the instant, in mode 2; then for each limit the numbers that its
--        machine's file tells. For a charge that failed "!" and why, instead of all that.
--
-- A line "--@ machine.part" stands for that part of the machine's file. Redis keeps nothing
-- of a run, so the script is fast by what it does not make: functions are made on first need.

local call, try, pcall, KEYS, ARGV = redis.call, redis.pcall, pcall, KEYS, ARGV
local format, floor, find, match, byte = string.format, math.floor, string.find, string.match, string.byte
local NONSENSE = 'TAILCUTSTATE: the key holds something that is not a state'

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local reply, last = {}, 0

-- A limit is an array, which takes a third of the time of a table with names. It has these
-- fields first, and those of its machine.
local MACHINE, SHADOW, FITS, CHANGED = 1, 2, 3, 4
local METER, COUNTER, OTHER = 1, 2, 3
--@ meter.fields
--@ counter.fields

local charge, key, count = 0, 0, #ARGV -- charges and keys that are done, and how many charges there are
local words, plans -- of the last charge; and by words what they say, if there are several
local plan, n, charging, dated, forced, ahead -- what those of the last charge say
local together, from = 0, 0 -- charges in a row of equal words and keys, and the reply before them
local rare, trails, bans -- methods, once they were needed

while charge < count do
	if ARGV[charge + 1] ~= words then
		words = ARGV[charge + 1]
		local mode, at = byte(words), 2
		charging, dated, forced, ahead = mode ~= 48, mode == 50, mode == 51, 0
		if byte(words, 2) == 58 then
			ahead, at = match(words, '^(%d+)()', 3)
			ahead = ahead + 0
		end
		plan = plans and plans[words]
		if not plan then
			repeat
				local shadow, kind, a, b, c, d, e, rest, next = match(words, '^ (~?)(%l+) (%d+),(%d+),?(%d*),?(%d*),?(%d*)([,%d]*)()', at)
				local l
				if kind == 'meter' or kind == 'initial' then
					--@ meter.parse
				elseif kind == 'fixed' or kind == 'elastic' then
					--@ counter.parse
				elseif kind == 'ban' then
					bans = bans or (function()
						--@ ban.methods
					end)()
					--@ ban.parse
				else
					trails = trails or {}
					if kind == 'moving' and not trails.moving then
						trails.moving = (function()
							--@ trail.ring
						end)()
					elseif kind ~= 'moving' and not trails.sliding then
						trails.sliding = (function()
							--@ trail.log
						end)()
						trails.refused = trails.sliding
					end
					--@ trail.parse
				end
				if plan then
					plan[#plan + 1] = l
				else
					plan = {l}
				end
				at = next
			until at > #words
			if count > 1 then
				plans = plans or {}
				plans[words] = plan
			end
		end
		n = #plan
	end

	-- Check: pass is whether every limit that can refuse has room, and rehearsed whether
	-- every other has.
	local pass, rehearsed, banned, again, problem = true, true, false, together > 0, nil
	local equal = words == ARGV[charge + 2] -- the next charge may go together with this one
	for k = 1, n do
		local l, fits, changed = plan[k], false, false
		local machine = l[MACHINE]
		if machine == METER then
			--@ meter.check
		elseif machine == COUNTER then
			--@ counter.check
		else
			local ok
			ok, fits = pcall(l.check, l, KEYS[key + k])
			if not ok then
				problem = fits
				break
			end
			equal = false
		end
		l[FITS] = fits
		if not fits then
			if l[SHADOW] then
				rehearsed = false
			else
				pass, banned = false, l.bans -- the ban policy is the last
			end
		end
		equal = equal and KEYS[key + k] == KEYS[key + n + k]
	end

	if not again then
		from = last
	end
	together = together + 1
	if dated and not problem then
		last = last + 1
		reply[last] = now
	end
	for k = 1, problem and 0 or n do
		local l = plan[k]
		local machine, fits, done = l[MACHINE], l[FITS], nil
		local all = charging and pass and (rehearsed or not l[SHADOW])
		if machine == METER then
			--@ meter.charge
		elseif machine == COUNTER then
			--@ counter.charge
		else
			local ok, a, b, c, d = pcall(l.charge, l, KEYS[key + k], charging, all, not banned and not fits, not banned and not pass)
			if ok then
				reply[last + 1], reply[last + 2], reply[last + 3] = a, b, c
				last = last + 3
				if d then
					last = last + 1
					reply[last] = d
				end
			else
				problem = a
				break
			end
		end
		if done and done.err then
			problem = done
			break
		end
	end

	if problem then -- what befalls a write befalls all that it is for
		problem = '!' .. (type(problem) == 'table' and problem.err or tostring(problem))
		for i = last, from + 1, -1 do
			reply[i] = nil
		end
		for i = from + 1, from + together do
			reply[i] = problem
		end
		last, equal = from + together, false
	end
	if not equal then
		together = 0
	end
	charge, key = charge + 1, key + n
end

return reply
