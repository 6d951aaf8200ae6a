-- why_lost answers why a lock is not ours any more: -1, or -2 (forced). A lock that is
-- gone, because somebody has deleted its key, is passed on: its waiters do not know yet.
--- include "keys"
--- include "passing"

read(redis.call('GET', lock))
mayGrow()
return passOn(reason(), unpack(ARGV))
