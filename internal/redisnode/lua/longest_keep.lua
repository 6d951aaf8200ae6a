-- longest says how long to keep a counter after the name's last lease: for the longest time
-- that any program has asked for. The counter's value has that, behind a colon. Else a program
-- with a shorter time would take from the others the order of their tokens.
local function longest(was, keep)
  return math.max(tonumber(string.match(was or '', '^%d+:(%d+)') or 0), keep)
end
