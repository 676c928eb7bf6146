-- This program amends a charge at one instant of this server's clock: it gives units back to the
-- limits of the charge, or releases or renews the slots of the charge. After a refund there is no
-- more room than if the charge had never happened, except that a bucket with Initial stays started.
-- If a key is missing, or its value is not a state, the program leaves the key as it is.
--
-- protocol.go says what the arguments and the reply are. take.lua says what the functions of a
-- machine do.

local state = require 'state'

-- amend amends one limit. load then sets all fields of the state: see more in meter.lua.
local function amend(machine, kind, list, key, now, made)
	local s, r, t, a = {more = true}, machine.amendArgs(kind, made, state.unpack(state.numbers(list)))
	machine.load(r, key, now, s)
	return machine.amend(r, now, t, a, s, key)
end

return function(keys, args)
	local now, made, i, done = require('clock')(), args[1] + 0, 0, 1
	for kind, list, shadow in string.gmatch(args[2], ' (%l+) ([%d,]+)(~?)') do
		i = i + 1
		local machine = require(kind)
		if machine.slots or now >= made then
			local ok, result = pcall(amend, machine, kind, list, keys[i], now, made)
			if not ok then
				local text = type(result) == 'table' and result.err or tostring(result)
				if not string.find(text, 'WRONGTYPE', 1, true) and not string.find(text, 'TAILCUTSTATE', 1, true) then error(result, 0) end
			end
			if machine.slots and shadow == '' and not (ok and result) then done = 0 end
		end
	end
	return done
end
