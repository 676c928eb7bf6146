-- Spans of time, as Span in rule.go: whole microseconds, and a fraction of one in parts.

-- sub is a - b.
local function sub(a, b, parts)
	local whole, part = a.whole - b.whole, a.part - b.part
	if part < 0 then
		whole, part = whole - 1, part + parts
	end
	return {whole = whole, part = part}
end

local function exceeds(a, b) return a.whole > b.whole or a.whole == b.whole and a.part > b.part end

-- ceil is a span in microseconds, rounded up.
local function ceil(a) return a.part > 0 and a.whole + 1 or a.whole end

return {sub = sub, exceeds = exceeds, ceil = ceil}
