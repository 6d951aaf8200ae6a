-- renew answers 1, or 0 if the lock is not ours. It names one key: while a slot of a
-- Cluster moves, its keys are on two servers, and neither serves a request that names
-- keys of both.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
-- A renewal that is late does not shorten what a handle has been renewed for (GT). To GT a key without an expiry has the longest.
if redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT') == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2], 'NX') end
return 1
