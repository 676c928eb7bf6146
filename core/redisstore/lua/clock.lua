-- This module is a function that returns the instant of a run, by the clock of this server, in
-- microseconds since 1970.

return function()
	local time = redis.call('TIME')
	local now = time[1] * 1000000 + time[2]
	-- If the scripts of a server do not know the time, every state would expire at once.
	if now < 946684800000000 or now >= 2 ^ 52 then -- 2000 to 2112
		error('TAILCUTTIME: in a script TIME says ' .. time[1] .. ' s; set the clock of the server, or use a server whose scripts know the time', 0)
	end
	return now
end
