-- keep_taken gives the lock back and leaves it taken for some time, under a value that
-- nobody has: '-' and the holder's. So nobody is granted it, a renewal that is still on
-- its way does not lengthen it, and clients of other libraries see the key. It answers 1,
-- or what release answers if the lock was not ours.
--
-- Sent again, it does the same and never lengthens the time that is left. It writes the key
-- in any case, for WAIT promises nothing of what another connection wrote. The counter
-- outlives the lock by its usual time.
--
-- Waiters sleep until the lease would have ended, which may be long after the lock is
-- free. So the first is told to look, and the last as well, for the first may be paused.
--- include "keys"
--- include "longest_keep"
--- include "passing"

local value, claim, counts, remember, time, counter = unpack(ARGV)
read(redis.call('GET', lock))
local nobody, waiting = '-' .. value, redis.call('ZCARD', queue)
local lost = held ~= value and held ~= nobody and reason()
mayGrow()
if remember ~= '0' and lost ~= -2 then redis.call('SET', mark, 'withdrawn', 'PX', remember) end
if lost then return passOn(lost, claim, counts) end
if held == value then
  redis.call('SET', lock, nobody, 'PX', time)
else
  redis.call('PEXPIRE', lock, time, 'LT')
  redis.call('SET', lock, nobody, 'KEEPTTL')
end
redis.call('PEXPIRE', last, time + longest(redis.call('GET', last), counter), 'GT')
local told = wake(0, counts)
if waiting > 1 then told = wake(-1, counts) or told end
return not told and redis.call('EXISTS', queue) == 1 and {1} or 1
