package redisnode

import (
	"crypto/sha1" //nolint:gosec // the server names scripts by it; no secret hangs on it
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/lockstile/locker/internal/redisclient"
)

// script is a Lua script and the hash that the server knows it by. Both are strings, as
// an argument of a command has them: so they are made once.
type script struct{ text, hash any }

// confirmed reports whether replicas must confirm what the script did: that is
// so for grants, renewals and what keeps a lock taken, not for what only gives back.
func (s *script) confirmed() bool {
	return s == acquire || s == renew || s == renewEntry || s == keepTaken
}

// releases reports whether the script ends a hold.
func (s *script) releases() bool { return s == release || s == keepTaken }

// call begins a command. It names the script by its hash. A server that has restarted,
// or has taken another's place, does not know the hash, and only its answer makes us
// send the text. What gives back has to work though no answer ever comes: it is sent as
// text at once.
func (s *script) call(args []any) []any {
	if s.releases() || s == withdraw || s == force {
		return append(args, "eval", s.text)
	}
	return append(args, "evalsha", s.hash)
}

// Tokens is how many numbers a grant has.
const Tokens = 64

// many is how many waiters a script looks at. The server does nothing else while a script
// runs, and 10,000 may wait. The next script goes on.
const many = 300

// endOfTokens is the first number that scripts count past: see [grants].
const endOfTokens = 1 << 53

func newScript(text string) *script {
	text = strings.NewReplacer("TOKENS", strconv.Itoa(Tokens), "MANY", strconv.Itoa(many)).Replace(text)
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text, hex.EncodeToString(sum[:])}
}

// keys begins scripts. Their KEYS are those of [Keys]. All writes come after all reads
// that could fail, for an error does not undo what a script has written. What the usual
// case does not need is defined after it, for the server defines functions anew in every
// call.
const keys = redisclient.Since7 + `
local moment
local lock, last, queue, ends, facts, due, mark = unpack(KEYS)
`

// release answers 0 if the lock was given back, and -1 or -2 (forced) if it was not
// ours. The mark refuses a request for the lock that is still on its way, in either case.
// A lock that is gone, because somebody has deleted its key, is passed on all the same:
// its waiters do not know yet.
var release = newScript(keys + releaseUnwanted + entries + leaving + releaseShare + waking + releaseWanted)

const releaseUnwanted = `
local value, claim, counts, remember = unpack(ARGV)
local has = redis.call('GET', lock)
local usual = remember == '0' and redis.call('EXISTS', queue) == 0
if usual and has == value then
  redis.call('DEL', lock)
  return 0
end
`

// releaseShare has the lock's key last for the others, and no longer: their leases may be
// shorter. An entry that is over and still there has kept others out until now.
const releaseShare = `
if usual and isNobodys(has) and remove(value) then
  local latest = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
  if latest then redis.call('PEXPIREAT', lock, latest, 'LT') else redis.call('DEL', lock, facts) end
  return 0
end
`

const releaseWanted = `
read(has)
local lost = (not free(value) or held) and reason()
mayGrow()
if remember ~= '0' and lost ~= -2 then redis.call('SET', mark, 'withdrawn', 'PX', remember) end
return passOn(lost or 0, claim, counts)
`

// keepTaken gives the lock back and leaves it taken for some time, under a value that
// nobody has: '-' and the holder's. So nobody is granted it, a renewal that is still on
// its way does not lengthen it, and clients of other libraries see the key. It answers 1,
// or what release answers if the lock was not ours.
//
// Sent again, it does the same and never lengthens the time that is left. It writes the key
// in any case, for WAIT promises nothing of what another connection wrote. The counter
// outlives the lock by its usual time.
//
// Waiters sleep until the lease would have ended, which may be long after the lock is
// free. So the first is told to look, and the last as well, for the first may be paused.
var keepTaken = newScript(keys + longestKeep + passing + `
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
`)

// withdraw removes whatever an attempt may have left: its place in the queue,
// a reservation, the lock. The mark refuses its request if that is still on the
// way, over a connection that is slower than this one. A lock that is kept taken stays so:
// a withdrawal may be late, too.
var withdraw = newScript(keys + passing + `
local value, claim, counts, remember, member = unpack(ARGV)
read(redis.call('GET', lock))
leave(member)
if remember ~= '0' then redis.call('SET', mark, 'withdrawn', 'PX', remember) end
free(value)
free('?' .. value)
if isReserved() then standBy(counts) end
return passOn(1, claim, counts)
`)

// renew answers 1, or 0 if the lock is not ours. It names one key: while a slot of a
// Cluster moves, its keys are on two servers, and neither serves a request that names
// keys of both.
var renew = newScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
`)

// renewEntry is renew for an entry. Where somebody has deleted the lock's key, it is written
// again. Somebody who has put another value there has taken the lock over. An entry that is
// lost keeps nobody out: what is lost is not withdrawn.
var renewEntry = newScript(redisclient.Since7 + `
local moment
local lock, ends, facts = unpack(KEYS)
` + entries + `
read(redis.call('GET', lock))
if held or not redis.call('ZSCORE', ends, ARGV[1]) or redis.call('HEXISTS', facts, ARGV[1]) == 0 then
  remove(ARGV[1])
  return 0
end
mayGrow()
enter(ARGV[1], ARGV[2])
settle()
return 1
`)

// whyLost answers why a lock is not ours any more: -1, or -2 (forced). A lock that is
// gone, because somebody has deleted its key, is passed on: its waiters do not know yet.
var whyLost = newScript(keys + passing + `
read(redis.call('GET', lock))
mayGrow()
return passOn(reason(), unpack(ARGV))
`)

// keepCounter keeps a counter, which would else expire under a lock that is held for
// hours.
var keepCounter = newScript(longestKeep + `
return redis.call('PEXPIRE', KEYS[1], ARGV[1] + longest(redis.call('GET', KEYS[1]), ARGV[2]), 'GT')
`)

// longestKeep says how long to keep a counter after the name's last lease: for the longest time
// that any program has asked for. The counter's value has that, behind a colon. Else a program
// with a shorter time would take from the others the order of their tokens.
const longestKeep = `
local function longest(was, keep)
  return math.max(tonumber(string.match(was or '', '^%d+:(%d+)') or 0), keep)
end
`

// inspect only reads. It shows some of those who share a lock, and answers where to go on, or
// '0'.
var inspect = newScript(`
local time = redis.call('TIME')
local now, values = time[1] * 1000 + math.floor(time[2] / 1000), {}
local next, left = unpack(redis.call('ZSCAN', KEYS[4], ARGV[1], 'COUNT', 500))
for i = 1, #left, 2 do
  table.insert(values, left[i])
  left[i + 1] = string.format('%d', left[i + 1] - now)
end
local facts = {}
for i = 1, #values, 1000 do
  for _, fact in ipairs(redis.call('HMGET', KEYS[5], unpack(values, i, math.min(i + 999, #values)))) do table.insert(facts, fact) end
end
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '',
  redis.call('ZCARD', KEYS[3]), left, facts, next}
`)

// force frees the lock if value has it, and leaves a mark for the holder to find. Sent
// again after a lost answer, it says the same.
var force = newScript(keys + passing + `
local value, claim, counts, remember = unpack(ARGV)
read(redis.call('GET', lock))
mayGrow()
if not free(value) then return passOn(redis.call('GET', mark) == 'forced' and 1 or 0, claim, counts) end
if remember ~= '0' then redis.call('SET', mark, 'forced', 'PX', remember) end
return passOn(1, claim, counts)
`)
