-- keep_counter keeps a counter, which would else expire under a lock that is held for
-- hours.
--- include "longest_keep"

return redis.call('PEXPIRE', KEYS[1], ARGV[1] + longest(redis.call('GET', KEYS[1]), ARGV[2]), 'GT')
