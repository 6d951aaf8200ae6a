-- withdraw removes whatever an attempt may have left: its place in the queue,
-- a reservation, the lock. The mark refuses its request if that is still on the
-- way, over a connection that is slower than this one. A lock that is kept taken stays so:
-- a withdrawal may be late, too.
--- include "keys"
--- include "passing"

local value, claim, counts, remember, member = unpack(ARGV)
read(redis.call('GET', lock))
leave(member)
if remember ~= '0' then redis.call('SET', mark, 'withdrawn', 'PX', remember) end
free(value)
free('?' .. value)
if isReserved() then standBy(counts) end
return passOn(1, claim, counts)
