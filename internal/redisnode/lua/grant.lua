-- grant draws so many numbers where exclusion is already certain, and answers the
-- first. It is a hybrid logical clock (Kulkarni et al., 2014): one more than the
-- last, and at least the server's clock in microseconds, so that it does not go back
-- when the counter was lost to a crash, a failover, eviction or expiry, unless the
-- clock went back too. Lua's numbers are doubles, exact below 2^53, which is the year
-- 2255: the first and the last number of a range must both stay below that.
--
-- The counter stands at the end of the range from then on. It is kept for some time
-- after the last lease, and at least until the clock has passed it. Its key holds four
-- words: the end of the range (and behind a colon how long to keep it: see longest_keep.lua), the
-- value, the first number, and the holder's text.
local function grant(numbers)
  local was, kept = string.match(redis.call('GET', last) or '', '^(%d+):?(%d*)')
  local first = math.max(clock(), (tonumber(was) or 0) + 1)
  local final, longest = first + (numbers - 1), math.max(tonumber(kept) or 0, keep)
  if final >= 9007199254740992 then
    error('the token counter ' .. last .. ' is out of range')
  end
  local words = wants and '' or string.format(' %s %.0f %s', value, first, holder)
  if not wants then redis.call('SET', lock, value, 'PX', ttl) end
  redis.call('SET', last, string.format('%.0f:%.0f', final, longest) .. words,
    'PXAT', string.format('%.0f', math.floor(final / 1000) + ttl + longest))
  return first
end
