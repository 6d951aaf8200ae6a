package specimen

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
)

// prelude names KEYS, which are those of Locker.keys. The last of ARGV is the flaw.
const prelude = `
local lock, last, who, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local flaw = ARGV[#ARGV]
`

// take answers a token, 0 if the attempt was withdrawn, or -1 if the lock is taken. It
// drops waiters that no longer ask.
var take = redis.NewScript(prelude + `
local id, value, ttl, holder, waits = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('EXISTS', 'mark:' .. id) == 1 then return 0 end
local held = redis.call('GET', lock)
if flaw == 'a try finds the lease over early' and waits == '0' and redis.call('PTTL', lock) < 100 then held = false end
if flaw == 'a new lease is short' then ttl = math.floor(ttl * 2 / 3) end
if held == id then
  if flaw ~= 'a grant is told twice' then redis.call('PEXPIRE', lock, ttl) end
  return tonumber(redis.call('GET', last))
end
local function first() return redis.call('ZRANGE', queue, 0, 0)[1] end
while first() and first() ~= id and redis.call('EXISTS', 'alive:' .. first()) == 0
  and flaw ~= 'dead waiters stay' and flaw ~= 'no clean-up' do
  redis.call('ZREM', queue, first())
end
local blind = flaw == 'waits for nobody' and waits == '1' or flaw == 'tries are blind' and waits == '0'
local orderly = flaw ~= 'no order' and flaw ~= 'token is drawn before the wait'
if not blind and (held or (orderly and first() and first() ~= id)) then
  if waits == '1' then
    redis.call('SET', 'alive:' .. id, '1', 'PX', 3000)
    if not redis.call('ZSCORE', queue, id) then redis.call('ZADD', queue, redis.call('INCR', 'tickets'), id) end
  end
  return -1
end
redis.call('ZREM', queue, id)
redis.call('SET', lock, value, 'PX', ttl)
redis.call('SET', who, holder)
if flaw == 'no expiry' then redis.call('PERSIST', lock) end
if flaw == 'tokens are all one' then return 1 end
local token = redis.call('INCR', last)
if flaw == 'counter goes with the lease' then redis.call('PEXPIREAT', last, redis.call('PEXPIRETIME', lock)) end
return token
`)

var renew = redis.NewScript(prelude + `
if flaw == 'renewal does not compare' then redis.call('SET', lock, ARGV[1]) end
if redis.call('GET', lock) ~= ARGV[1] then return 0 end
local ttl = tonumber(ARGV[2])
if flaw == 'a renewed lease is short' then ttl = math.floor(ttl * 2 / 3) end
redis.call('PEXPIRE', lock, ttl)
return 1
`)

var release = redis.NewScript(prelude + `
if redis.call('GET', lock) ~= ARGV[1] and flaw ~= 'release does not compare' then return 0 end
if ARGV[2] == '0' or flaw == 'a minimum hold is forgotten' then
  redis.call('DEL', lock)
else
  redis.call('SET', lock, 'kept after ' .. ARGV[1], 'PX', ARGV[2])
end
if flaw == 'counter goes with the lock' then redis.call('DEL', last) end
return 1
`)

var handOver = redis.NewScript(prelude + `
if redis.call('GET', lock) ~= ARGV[1] then return 0 end
redis.call('SET', lock, ARGV[2], 'PX', ARGV[3])
return redis.call('INCR', last)
`)

// withdraw leaves a mark, so that a request that arrives later is refused.
var withdraw = redis.NewScript(prelude + `
local id, value = ARGV[1], ARGV[2]
redis.call('ZREM', queue, id)
if flaw ~= 'clean-up without a mark' then redis.call('SET', 'mark:' .. id, '1', 'PX', 120000) end
local held = redis.call('GET', lock)
if held == value or held == 'kept after ' .. value and flaw == 'a clean-up frees what is kept' then redis.call('DEL', lock) end
return 1
`)

var look = redis.NewScript(prelude + `
if flaw == 'looking counts' then redis.call('INCR', last) end
return {redis.call('GET', lock) or '', tostring(redis.call('PTTL', lock)), redis.call('GET', last) or '',
  redis.call('GET', who) or '', tostring(redis.call('ZCARD', queue))}
`)

var force = redis.NewScript(prelude + `
if flaw == 'break resets the counter' then redis.call('DEL', last) end
if flaw == 'a broken value is refused' then redis.call('SET', 'mark:' .. (redis.call('GET', lock) or ''), '1', 'PX', 120000) end
return redis.call('DEL', lock)
`)

// acquire asks for the lock, in one step unless that is the flaw.
func (s *Locker) acquire(ctx context.Context, a *attempt, waits bool) (int64, error) {
	switch s.flaw {
	case "set, then expire":
		return s.setThenExpire(ctx, a)
	case "timestamps":
		return s.timestamps(ctx, a)
	}
	asked := 0
	if waits {
		asked = 1
	}
	ttl := a.req.TTL.Milliseconds()
	if s.is("a lease is as long as the longest") {
		ttl = max(ttl, s.longest.Load())
		s.longest.Store(ttl)
	}
	return s.run(ctx, take, a.req.Name, a.id, a.value, ttl, a.req.Holder, asked, s.flaw)
}

func (s *Locker) setThenExpire(ctx context.Context, a *attempt) (int64, error) {
	keys := s.keys(a.req.Name)
	ok, err := s.rdb.Do(ctx, "setnx", keys[0], a.value).Bool()
	if err != nil || !ok {
		return -1, err
	}
	if err := s.rdb.PExpire(ctx, keys[0], a.req.TTL).Err(); err != nil {
		return 0, err
	}
	return s.rdb.Incr(ctx, keys[1]).Result()
}

// timestamps is the algorithm that Redis's page of SETNX once described. The key's value
// is the end of the lock, by the holder's clock. A client that finds it in the past puts
// its own there. The holder deletes the key, and nobody renews.
func (s *Locker) timestamps(ctx context.Context, a *attempt) (int64, error) {
	keys := s.keys(a.req.Name)
	mine := strconv.FormatInt(time.Now().Add(a.req.TTL).UnixMilli(), 10)
	ok, err := s.rdb.Do(ctx, "setnx", keys[0], mine).Bool()
	if err == nil && !ok {
		theirs, _ := s.rdb.Get(ctx, keys[0]).Result()
		if end, _ := strconv.ParseInt(theirs, 10, 64); end > time.Now().UnixMilli() {
			return -1, nil
		}
		was, failed := s.rdb.Do(ctx, "getset", keys[0], mine).Text()
		ok, err = was == theirs, failed
	}
	if err != nil || !ok {
		return -1, err
	}
	return s.rdb.Incr(ctx, keys[1]).Result()
}

func (s *Locker) getThenDel(ctx context.Context, a *attempt) error {
	key := s.keys(a.req.Name)[0]
	value, err := s.rdb.Get(ctx, key).Result()
	if err == nil && value == a.value {
		return s.rdb.Del(ctx, key).Err()
	}
	return &locker.LostError{Name: a.req.Name, Reason: locker.TakenOver, Cause: err}
}
