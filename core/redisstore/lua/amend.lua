-- Amends a charge: gives back units of it to its limits, or releases or renews its slots, at one
-- instant of this server's clock. After a refund there is no more room than if the charge had never
-- happened. A missing key and a foreign value are left as they are.
--
-- Its keys, its arguments and its reply are in protocol.go.

return function(keys, args)
	local now, made, i, done = require('clock')(), args[1] + 0, 0, 1
	for kind, list, shadow in string.gmatch(args[2], ' (%l+) ([%d,]+)(~?)') do
		i = i + 1
		local machine = require(kind)
		if machine.slots or now >= made then
			local ok, result = pcall(machine.amend, keys[i], now, made, list, kind)
			if not ok then
				local text = type(result) == 'table' and result.err or tostring(result)
				if not string.find(text, 'WRONGTYPE', 1, true) and not string.find(text, 'TAILCUTSTATE', 1, true) then error(result, 0) end
			end
			if machine.slots and shadow == '' and not (ok and result) then done = 0 end
		end
	end
	return done
end
