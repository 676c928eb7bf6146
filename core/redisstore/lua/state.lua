-- This module has what the machines have in common. A script that requires this module makes it in
-- each run, which costs 6 % of a charge. Therefore meter.lua and counter.lua require it only for
-- some charges. They do not use its function expiry.

local format = string.format

return {
	nonsense = 'TAILCUTSTATE: the key holds something that is not a state',

	-- int returns an integer below 2^53 as text. tostring would round it to 14 digits.
	int = function(n) return format('%d', n) end,

	-- expiry returns when a key expires, in milliseconds, rounded up. at is in microseconds.
	expiry = function(at) return format('%d', math.floor((at + 999) / 1000)) end,

	unpack = table.unpack or unpack, -- Lua 5.1 has unpack

	-- numbers returns the numbers in a text.
	numbers = function(list)
		local numbers = {}
		for number in string.gmatch(list, '%d+') do
			numbers[#numbers + 1] = number + 0
		end
		return numbers
	end,
}
