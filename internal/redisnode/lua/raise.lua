-- raise lifts the counter to final, the end of the range that the lock was granted by its
-- majority. The grant's first number here stays, so that it answers the same when it
-- is sent again. It answers the first of the range, or -1 if the lock is not ours.
--
-- An entry has the number of its majority from then on. Another entry may have been given
-- just that: requests of readers cross, and each node numbers them in another order. Then
-- the answer is a greater one. Whoever drew a number here since has another one, for the
-- counter is past both. A reader who has left is not looked for: to answer a greater number
-- whenever the counter has reached this one would have readers raise each other without end.
--- include "keys"
--- include "longest_keep"
--- include "entries"

local value, final, first, holder, keep = unpack(ARGV)
read(redis.call('GET', lock))
local entry = not held and redis.call('ZSCORE', ends, value)
local fact = entry and redis.call('HGET', facts, value)
if held ~= value and not fact then return -1 end
local was, words = redis.call('GET', last) or '0', ''
local counter = tonumber(string.match(was, '^%d+'))
if entry then
  local number, rest = string.match(fact, '^(%d+)( .*)$')
  if tonumber(number) >= tonumber(final) then return tonumber(number) end
  for _, other in ipairs(redis.call('HVALS', facts)) do
    if string.match(other, '^%d+') == final then final = string.format('%.0f', counter + 1) end
  end
  first = final
  redis.call('HSET', facts, value, final .. rest)
end
if counter < tonumber(final) then
  local left = entry and entry - now() or redis.call('PTTL', lock)
  if not entry then words = ' ' .. value .. ' ' .. (string.match(was, '^%S+ %S+ (%d+)') or first) .. ' ' .. holder end
  keep = longest(was, keep)
  redis.call('SET', last, string.format('%s:%.0f', final, keep) .. words, 'PXAT', string.format('%.0f', math.floor(tonumber(final) / 1000) + left + keep))
end
return tonumber(first)
