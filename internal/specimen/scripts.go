package specimen

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
)

// prelude names KEYS, which are those of Locker.keys. The last of ARGV is the flaw. Readers
// and those who have slots are in beside, with the ends of their leases. In about are the
// number, the slot and the text of each, and the kind of them all.
const prelude = `
local lock, last, who, queue, beside, about = unpack(KEYS)
local flaw = ARGV[#ARGV]

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function leave(id)
  redis.call('HDEL', about, id)
  local left = redis.call('ZREM', beside, id)
  if redis.call('EXISTS', beside) == 0 then redis.call('DEL', about) end
  return left
end

-- sweep takes out those whose leases have ended.
local function sweep()
  if flaw == 'slots are a bare counter' then return end
  local gone = redis.call('ZRANGEBYSCORE', beside, '-inf', now())
  for _, id in ipairs(gone) do leave(id) end
  if #gone > 0 and flaw == 'a reader that dies frees all' then redis.call('DEL', beside, about) end
end

-- ahead returns the kinds of those who wait before id, or of all if it does not wait. It drops
-- those that no longer ask.
local function ahead(id)
  local kinds = {}
  local stay = flaw == 'dead waiters stay' or flaw == 'no clean-up'
  for _, other in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    if other == id then break end
    local kind = redis.call('GET', 'alive:' .. other)
    if kind or stay then table.insert(kinds, kind or 'exclusive 0') else redis.call('ZREM', queue, other) end
  end
  return kinds
end
`

// take answers a token and a slot; 0 if the attempt was withdrawn, or -1 if the lock is
// taken; or -2 and the kind with which that of the request does not go.
var take = redis.NewScript(prelude + `
local id, value, ttl, holder, waits, kind, n = unpack(ARGV)
local want = kind .. ' ' .. n
n = tonumber(n)
if redis.call('EXISTS', 'mark:' .. id) == 1 then return {'0'} end
sweep()
local held = redis.call('GET', lock)
if flaw == 'a try finds the lease over early' and waits == '0' and redis.call('PTTL', lock) < 100 then held = false end
if flaw == 'a new lease is short' then ttl = math.floor(ttl * 2 / 3) end
if held == id then
  if flaw ~= 'a grant is told twice' then redis.call('PEXPIRE', lock, ttl) end
  return {redis.call('GET', last)}
end
local mine = redis.call('HGET', about, id)
if mine then
  redis.call('ZADD', beside, 'XX', now() + ttl, id)
  return {string.match(mine, '^(%d+) (-?%d+)')}
end
local line, count = ahead(id), redis.call('ZCARD', beside)
local have = held and 'exclusive 0' or redis.call('HGET', about, 'kind') or line[1] or want
if have ~= want and string.find(have .. want, 'slots') and flaw ~= 'another n is accepted' then return {'-2', have} end
local orderly = flaw ~= 'no order' and flaw ~= 'token is drawn before the wait'
local blocked = held or orderly and #line > 0
if kind == 'exclusive' then
  blocked = blocked or count > 0 and flaw ~= 'a writer does not see readers'
elseif kind == 'slots' then
  blocked = blocked or count >= n
else
  blocked = held
  for _, other in ipairs(line) do
    blocked = blocked or other == 'exclusive 0' and flaw ~= 'a writer that waits does not stop readers'
  end
  if flaw == 'readers are let in one by one' and redis.call('ZSCORE', queue, id) then blocked = blocked or count + #line > 0 end
end
local blind = flaw == 'waits for nobody' and waits == '1' or flaw == 'tries are blind' and waits == '0'
if not blind and blocked then
  if waits == '1' then
    if flaw == 'a place ends with its TTL' then
      redis.call('SET', 'alive:' .. id, want, 'NX', 'PX', ttl)
    else
      redis.call('SET', 'alive:' .. id, want, 'PX', 1500)
    end
    if not redis.call('ZSCORE', queue, id) then
      local tail = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
      redis.call('ZADD', queue, 1 + (tail[2] or 0), id)
    end
  end
  return {'-1'}
end
redis.call('ZREM', queue, id)
if kind == 'exclusive' then
  redis.call('SET', lock, value, 'PX', ttl)
  redis.call('SET', who, holder)
  if flaw == 'no expiry' then redis.call('PERSIST', lock) end
  if flaw == 'tokens are all one' then return {'1'} end
  local token = redis.call('INCR', last)
  if flaw == 'counter goes with the lease' then redis.call('PEXPIREAT', last, redis.call('PEXPIRETIME', lock)) end
  return {tostring(token)}
end
if flaw == 'one decides, and others are told taken' and not redis.call('SET', 'turn', id, 'NX', 'PX', 1000) then return {'-1'} end
local slot = -1
if kind == 'slots' then
  local used = {}
  for _, text in ipairs(redis.call('HVALS', about)) do used[string.match(text, '^%d+ (%d+)') or ''] = true end
  slot = 0
  while used[tostring(slot)] do slot = slot + 1 end
  if flaw == 'a slot is the number of holders' then slot = count end
end
local number
if flaw == 'a reader draws no number' and kind == 'shared' then
  number = redis.call('GET', last) or 1
elseif flaw == 'the token of a slot is its number' and kind == 'slots' then
  number = slot + 1
else
  number = redis.call('INCR', last)
end
local ends = now() + ttl
if flaw == 'the lease of all readers is the longest' then
  ends = math.max(ends, tonumber(redis.call('ZRANGE', beside, -1, -1, 'WITHSCORES')[2] or 0))
end
redis.call('ZADD', beside, ends, id)
if string.find(flaw, 'the lease of all readers') then
  for _, other in ipairs(redis.call('ZRANGE', beside, 0, -1)) do redis.call('ZADD', beside, ends, other) end
end
redis.call('HSET', about, 'kind', want, id, number .. ' ' .. slot .. ' ' .. holder)
return {tostring(number), tostring(slot)}
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
if flaw ~= 'a release leaves no mark' then redis.call('SET', 'mark:' .. ARGV[1], '1', 'PX', 60000) end
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

// renewBeside and releaseBeside are for readers and slots.
var renewBeside = redis.NewScript(prelude + `
sweep()
if not redis.call('ZSCORE', beside, ARGV[1]) then return 0 end
redis.call('ZADD', beside, now() + ARGV[2], ARGV[1])
return 1
`)

var releaseBeside = redis.NewScript(prelude + `
sweep()
if flaw == 'a release frees all readers' then return redis.call('DEL', beside, about) end
if flaw == 'the end of a slot is not noticed' then
  local all = redis.call('HGETALL', about)
  for i = 2, #all, 2 do
    if string.match(all[i], '^%d+ (%d+)') == ARGV[2] then leave(all[i - 1]) end
  end
  return 1
end
return leave(ARGV[1])
`)

// withdraw leaves a mark, so that a request that arrives later is refused.
var withdraw = redis.NewScript(prelude + `
local id, value = ARGV[1], ARGV[2]
redis.call('ZREM', queue, id)
leave(id)
if flaw ~= 'clean-up without a mark' then redis.call('SET', 'mark:' .. id, '1', 'PX', 60000) end
local held = redis.call('GET', lock)
if held == value or held == 'kept after ' .. value and flaw == 'a clean-up frees what is kept' then redis.call('DEL', lock) end
return 1
`)

// look answers five texts of the exclusive lock and the queue, the kind of those beside, and
// of each of these four texts.
var look = redis.NewScript(prelude + `
if flaw == 'looking counts' then redis.call('INCR', last) end
sweep()
local shown = {redis.call('GET', lock) or '', tostring(redis.call('PTTL', lock)), redis.call('GET', last) or '',
  redis.call('GET', who) or '', tostring(redis.call('ZCARD', queue)), redis.call('HGET', about, 'kind') or ''}
for _, id in ipairs(redis.call('ZRANGE', beside, 0, -1)) do
  local number, slot, text = string.match(redis.call('HGET', about, id), '^(%d+) (-?%d+) (.*)$')
  for _, s in ipairs({number, slot, text, tostring(redis.call('ZSCORE', beside, id) - now())}) do table.insert(shown, s) end
end
return shown
`)

// force frees everybody, or those with the tokens that come before the flaw.
var force = redis.NewScript(prelude + `
if flaw == 'break resets the counter' then redis.call('DEL', last) end
if flaw == 'a broken value is refused' then redis.call('SET', 'mark:' .. (redis.call('GET', lock) or ''), '1', 'PX', 60000) end
sweep()
local all, freed, chosen = #ARGV == 1 or flaw == 'a break takes all', 0, {}
for i = 1, #ARGV - 1 do chosen[ARGV[i]] = true end
if all or chosen[redis.call('GET', last)] then freed = redis.call('DEL', lock) end
for _, id in ipairs(redis.call('ZRANGE', beside, 0, -1)) do
  if all or chosen[string.match(redis.call('HGET', about, id), '^%d+')] then freed = freed + leave(id) end
end
return freed
`)

// acquire asks for the lock, in one step unless that is the flaw.
func (s *Locker) acquire(ctx context.Context, a *attempt, waits bool) (grant, error) {
	switch s.flaw {
	case "set, then expire":
		token, err := s.setThenExpire(ctx, a)
		return grant{token: token}, err
	case "timestamps":
		token, err := s.timestamps(ctx, a)
		return grant{token: token}, err
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
	got, err := take.Run(ctx, s.rdb, s.keys(a.req.Name), a.id, a.value, ttl, a.req.Holder, asked, a.req.Kind.String(), a.req.Slots, s.flaw).StringSlice()
	if err != nil {
		return grant{}, err
	}
	return granted(got), nil
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
	return &locker.LostError{Name: a.req.Name, Reason: locker.ReasonTakenOver, Cause: err}
}
