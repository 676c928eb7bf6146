-- The machine of each kind of limit.

return function(kind)
	if kind == 'bucket' or kind == 'funnel' then return require 'meter' end
	if kind == 'fixed' or kind == 'elastic' or kind == 'calendar' then return require 'counter' end
	if kind == 'sliding' or kind == 'refused' or kind == 'moving' then return require 'trail' end
	if kind == 'inflight' then return require 'slots' end
	if kind == 'ban' then return require 'ban' end
	local unknown = {} -- fails its charge, and no other
	function unknown.args() return {} end
	function unknown.load() error('no such kind: ' .. kind, 0) end
	return unknown
end
