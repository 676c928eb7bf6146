-- Gives back units of a charge to all of its limits, at one instant of this server's clock.
-- There is then no more room than if the charge had never happened. A missing key and a foreign
-- value are left as they are.
--
-- keys  one for each limit that was charged
-- args  the instant of the charge; the rules of the limits, see take.lua: the numbers of a
--       refund are at the top of each machine's file

local machineOf = require 'machines'

return function(keys, args)
	local time = redis.call('TIME')
	local now, made, i = time[1] * 1000000 + time[2], args[1] + 0, 0
	if now < made then return 0 end
	for kind, list in string.gmatch(args[2], ' (%l+) ([%d,]+)') do
		i = i + 1
		local ok, problem = pcall(machineOf(kind).refund, keys[i], now, made, list, kind)
		local text = type(problem) == 'table' and problem.err or tostring(problem)
		if not ok and not string.find(text, 'WRONGTYPE', 1, true) and not string.find(text, 'TAILCUTSTATE', 1, true) then
			error(problem, 0)
		end
	end
	return 1
end
