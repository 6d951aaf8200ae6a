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
func (s *script) confirmed() bool { return s == acquire || s == renew || s == keepTaken }

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

// acquireOfQuorum is acquire for a node that is one of several.
var acquireOfQuorum = newScript(keys + quorumClock + grants + restartRule + acquireFree + passing + quorumArrival + acquireTaken)

// Tokens is how many numbers a grant has.
const Tokens = 64

func newScript(text string) *script {
	text = strings.ReplaceAll(text, "TOKENS", strconv.Itoa(Tokens))
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text, hex.EncodeToString(sum[:])}
}

// keys begins scripts. Their KEYS are those of [Keys]. All writes come after all reads
// that could fail, for an error does not undo what a script has written. What the usual
// case does not need is defined after it, for the server defines functions anew in every
// call.
const keys = redisclient.Since7 + `
local lock, last, queue, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
`

// serverClock and quorumClock are what grant lifts a token to, in microseconds. A
// node that stands alone goes by its own clock. Nodes of a quorum must come to the
// same token, so each takes the clock that the client offers to all of them, its
// last argument, as long as that is within a tenth of a second of the node's own.
const (
	serverClock = `
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
`
	quorumClock = `
local function clock()
  local time = redis.call('TIME')
  local own = time[1] * 1000000 + time[2]
  return math.max(own - 100000, math.min(own + 100000, tonumber(ARGV[#ARGV])))
end
`
)

// serverArrival and quorumArrival are a newcomer's ticket. On a server that stands
// alone it is behind those of all waiters, also when the clock has gone back: else,
// after a step of an hour, newcomers would overtake them for an hour. Nodes of a quorum
// have different queues and must come to the same ticket.
const (
	serverArrival = `
local function arrival(queue)
  local latest = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  return math.max(clock(), (tonumber(latest) or 0) + 1)
end
`
	quorumArrival = `
local arrival = clock
`
)

// restartRule refuses the vote of a node that may have forgotten a lock in a
// restart that is younger than the longest lease. The uptime is counted in whole
// seconds, so the last may not be over yet.
//
// It is counted on the wall clock, too, and negative after a step back. So a
// process that was once old enough is remembered, in a key of the node, and the
// uptime is not asked again: a restarted one has another run_id, also where it
// finds the key in its snapshot. The quarantine is remembered with it, for a
// client with a longer one asks for more.
const restartRule = `
local quarantine = tonumber(ARGV[#ARGV - 1])
if quarantine > 0 then
  local info = redis.call('INFO', 'server')
  local run = string.match(info, 'run_id:(%w+)')
  local voter = run and run .. ' ' .. quarantine
  if not voter or redis.call('GET', 'lockstile:voter') ~= voter then
    local up = string.match(info, 'uptime_in_seconds:(-?%d+)')
    if not voter or not up or (up - 1) * 1000 < quarantine then
      local wait = math.ceil(quarantine / 1000) + 1 - (up or 0)
      return redis.error_reply('YOUNG no vote for another ' .. wait .. ' s, until it has been up for longer than max_ttl')
    end
    redis.call('SET', 'lockstile:voter', voter)
  end
end
`

// grant draws Tokens numbers where exclusion is already certain, and answers the
// first. It is a hybrid logical clock (Kulkarni et al., 2014): one more than the
// last, and at least the server's clock in microseconds, so that it does not go back
// when the counter was lost to a crash, a failover, eviction or expiry, unless the
// clock went back too. Lua's numbers are doubles, exact below 2^53, which is the year
// 2255: the first and the last number of a range must both stay below that.
//
// The counter stands at the end of the range from then on. It is kept for some time
// after the last lease, and at least until the clock has passed it. Its key holds four
// words: the end of the range, the value, the first number, and the holder's text.
const grants = `
local function number(was)
  return was and tonumber(string.match(was, '^%d+')) or 0
end

local function grant(value, ttl, holder)
  local was = redis.call('GET', last)
  local first = math.max(clock(), number(was) + 1)
  local final = first + (TOKENS - 1)
  if final >= 9007199254740992 then
    error('the token counter ' .. last .. ' is out of range')
  end
  redis.call('SET', lock, value, 'PX', ttl)
  redis.call('SET', last, string.format('%.0f %s %.0f %s', final, value, first, holder),
    'PXAT', string.format('%.0f', math.floor(final / 1000) + ttl + ARGV[8]))
  return first
end
`

// pass reserves a lock that becomes free for the first waiter that is still there. Only
// that waiter's process is told to claim it. A waiter whose process does not listen any
// more is dropped. (In a Cluster a server counts only its own listeners. There counts is
// 0, and nobody is dropped.) A waiter that does not claim the lock in time loses it. So
// that somebody notices, the last of the queue, which has come most recently, is told to
// look again by then: several at the front may be paused, and all others sleep until the
// end of a lease that is long over. Where the last does not listen, the first is told.
const passing = `
local function tell(member, word)
  local value, id = string.match(member, '^([^:]+):(.+)$')
  if not id then return nil, 0 end
  return value, redis.pcall('PUBLISH', 'lockstile:w:' .. id, word .. value)
end

local function standBy(counts)
  local latest = redis.call('ZRANGE', queue, -1, -1)[1]
  local _, heard = tell(latest or '', '!')
  if latest and (heard == 0 or counts == '0') then
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if first ~= latest then tell(first, '!') end
  end
end

local function pass(claim, counts)
  while true do
    local member = redis.call('ZPOPMIN', queue)[1]
    if not member then return false end
    local value, heard = tell(member, '')
    if value and (heard ~= 0 or counts == '0') then
      redis.call('SET', lock, '?' .. value, 'PX', claim)
      standBy(counts)
      return true
    end
  end
end

local function reason()
  if redis.call('GET', mark) == 'forced' then return -2 end
  return -1
end
`

// acquire answers the token, or 0 if the value was withdrawn, or how things
// stand: the lock's time left in ms, how many wait before us, our ticket. A waiter that
// finds a claim lapsed passes the lock on, and is told that nobody waits before it. So it
// looks again when the next claim may lapse: it has shown that it is awake.
//
// A holder that the last grant does not name is a stranger: a client of another library,
// which tells nobody when it gives the lock back. So the first waiter is told to look
// ten times a second, and each other one a second later than the one before it: a long
// queue does not ask all the time. A stranger's key has any number of milliseconds left,
// or no end. A reservation of ours is no stranger, nor is a lock that is kept taken.
//
// Sent again after a lost reply, it answers the same grant and starts the lease anew, for
// the caller may count its validity from the second request.
var acquire = newScript(keys + serverClock + grants + acquireFree + passing + serverArrival + acquireTaken)

const acquireFree = `
local value, ttl, holder, claim, counts, member, ticket = unpack(ARGV)
if redis.call('EXISTS', lock, queue, mark) == 0 then return grant(value, ttl, holder) end
`

const acquireTaken = `
local held, was, passed = redis.call('GET', lock), redis.call('GET', last) or '', false
if held == value then
  local _, next = string.find(was, ' ' .. value .. ' ', 1, true)
  if next then
    redis.call('PEXPIRE', lock, ttl)
    return tonumber(string.match(was, '^%d+', next + 1))
  end
  return grant(value, ttl, holder)
end
if redis.call('EXISTS', mark) == 1 then return 0 end
if not held and redis.call('ZRANGE', queue, 0, 0)[1] ~= member and pass(claim, counts) then
  held, passed = redis.call('GET', lock), true
end
if not held or held == '?' .. value then
  if member ~= '' then redis.call('ZREM', queue, member) end
  return grant(value, ttl, holder)
end
if member == '' then return {0, 0, 0} end
if ticket == '0' then ticket = string.format('%.0f', arrival(queue)) end
redis.call('ZADD', queue, 'NX', ticket, member)
local ahead = passed and 0 or redis.call('ZRANK', queue, member)
local left, look = redis.call('PTTL', lock), 100 + ahead * 1000
local of = string.match(was, '^%d+ (%S+) ')
local ours = of and (held == of or held == '-' .. of) or #held == 28 and string.sub(held, 1, 1) == '?'
if left < 0 or left > look and not ours then left = look end
local keep = math.max(left, tonumber(ttl)) + 60000
if redis.call('PTTL', queue) < keep - 30000 then redis.call('PEXPIRE', queue, keep) end
return {left, ahead, tonumber(ticket)}
`

// release answers 0 if the lock was given back, and -1 or -2 (forced) if it was not
// ours. The mark refuses a request for the lock that is still on its way, in either case.
// A lock that is gone, because somebody has deleted its key, is passed on all the same:
// its waiters do not know yet.
var release = newScript(keys + releaseUnwanted + passing + releaseWanted)

const releaseUnwanted = `
local value, claim, counts, remember = unpack(ARGV)
local held, waiting = redis.call('GET', lock), redis.call('EXISTS', queue) == 1
if held == value and remember == '0' and not waiting then
  redis.call('DEL', lock)
  return 0
end
`

const releaseWanted = `
local lost = held ~= value and reason()
if remember ~= '0' and lost ~= -2 then redis.call('SET', mark, 'withdrawn', 'PX', remember) end
if lost then
  if not held and waiting then pass(claim, counts) end
  return lost
end
if not (waiting and pass(claim, counts)) then redis.call('DEL', lock) end
return 0
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
var keepTaken = newScript(keys + passing + `
local value, claim, counts, remember, time, counter = unpack(ARGV)

local function wake(at)
  while true do
    local member = redis.call('ZRANGE', queue, at, at)[1]
    if not member then return end
    local of, heard = tell(member, '')
    if of and (heard ~= 0 or counts == '0') then return end
    redis.call('ZREM', queue, member)
  end
end

local held, nobody = redis.call('GET', lock), '-' .. value
local waiting = redis.call('ZCARD', queue)
local lost = held ~= value and held ~= nobody and reason()
if remember ~= '0' and lost ~= -2 then redis.call('SET', mark, 'withdrawn', 'PX', remember) end
if lost then
  if not held and waiting > 0 then pass(claim, counts) end
  return lost
end
if held == value then
  redis.call('SET', lock, nobody, 'PX', time)
else
  redis.call('PEXPIRE', lock, time, 'LT')
  redis.call('SET', lock, nobody, 'KEEPTTL')
end
redis.call('PEXPIRE', last, time + counter, 'GT')
wake(0)
if waiting > 1 then wake(-1) end
return 1
`)

// withdraw removes whatever an attempt may have left: its place in the queue,
// a reservation, the lock. The mark refuses its request if that is still on the
// way, over a connection that is slower than this one. A lock that is kept taken stays so:
// a withdrawal may be late, too.
var withdraw = newScript(keys + passing + `
local value, claim, counts, remember, member = unpack(ARGV)
local held = redis.call('GET', lock)
redis.call('ZREM', queue, member)
if remember ~= '0' then redis.call('SET', mark, 'withdrawn', 'PX', remember) end
if held == '?' .. value or held == value then
  if not pass(claim, counts) then redis.call('DEL', lock) end
end
return 1
`)

// renew answers 1, or 0 if the lock is not ours. It names one key: while a slot of a
// Cluster moves, its keys are on two servers, and neither serves a request that names
// keys of both.
var renew = newScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
`)

// whyLost answers why a lock is not ours any more: -1, or -2 (forced). A lock that is
// gone, because somebody has deleted its key, is passed on: its waiters do not know yet.
var whyLost = newScript(keys + passing + `
if redis.call('EXISTS', lock) == 0 and redis.call('EXISTS', queue) == 1 then pass(unpack(ARGV)) end
return reason()
`)

// keepCounter keeps a counter, which would else expire under a lock that is held for
// hours.
var keepCounter = newScript(`
return redis.call('PEXPIRE', KEYS[1], ARGV[1], 'GT')
`)

// inspect only reads.
var inspect = newScript(`
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]),
  redis.call('GET', KEYS[2]) or '', redis.call('ZCARD', KEYS[3])}
`)

// force frees the lock if value has it, and leaves a mark for the holder to find. Sent
// again after a lost answer, it says the same.
var force = newScript(keys + passing + `
local value, claim, counts, remember = unpack(ARGV)
if redis.call('GET', lock) ~= value then return redis.call('GET', mark) == 'forced' and 1 or 0 end
if remember ~= '0' then redis.call('SET', mark, 'forced', 'PX', remember) end
if not pass(claim, counts) then redis.call('DEL', lock) end
return 1
`)

// raise lifts the counter to the end of the range that the lock was granted by its
// majority. The grant's first number here stays, so that it answers the same when it
// is sent again. It answers 1, or -1 if the lock is not ours.
var raise = newScript(`
local lock, last = KEYS[1], KEYS[2]
local value, final, first, holder, keep = unpack(ARGV)
if redis.call('GET', lock) ~= value then return -1 end
local was = redis.call('GET', last) or '0'
if tonumber(string.match(was, '^%d+')) < tonumber(final) then
  local own = string.match(was, '^%d+ %S+ (%d+)') or first
  redis.call('SET', last, final .. ' ' .. value .. ' ' .. own .. ' ' .. holder,
    'PXAT', string.format('%.0f', math.floor(tonumber(final) / 1000) + redis.call('PTTL', lock) + keep))
end
return 1
`)
