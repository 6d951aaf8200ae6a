-- grant draws TOKENS numbers where exclusion is already certain, and answers the
-- first. It is a hybrid logical clock (Kulkarni et al., 2014): one more than the
-- last, and at least the server's clock in microseconds, so that it does not go back
-- when the counter was lost to a crash, a failover, eviction or expiry, unless the
-- clock went back too. Lua's numbers are doubles, exact below 2^53, which is the year
-- 2255: the first and the last number of a range must both stay below that.
--
-- The counter stands at the end of the range from then on. It is kept for some time
-- after the last lease, and at least until the clock has passed it. Its key holds four
-- words: the end of the range (and behind a colon how long to keep it), the value, the first
-- number, and the holder's text.
--- include "longest_keep"

local before

local function draw(count)
  before = redis.call('GET', last) or ''
  local first = math.max(clock(), (tonumber(string.match(before, '^%d+')) or 0) + 1)
  local final = first + (count - 1)
  if final >= 9007199254740992 then
    error('the token counter ' .. last .. ' is out of range')
  end
  return first, final
end

local function keepLast(final, words, ttl)
  local keep = longest(before, ARGV[8])
  redis.call('SET', last, string.format('%.0f:%.0f', final, keep) .. words,
    'PXAT', string.format('%.0f', math.floor(final / 1000) + ttl + keep))
end

local function grant(value, ttl, holder)
  local first, final = draw(TOKENS)
  redis.call('SET', lock, value, 'PX', ttl)
  keepLast(final, string.format(' %s %.0f %s', value, first, holder), ttl)
  return first
end
