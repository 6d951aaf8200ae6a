// Package redisfence guards data in Redis: a write is refused if its fencing
// token is smaller than the greatest that its key has seen. The locks may be in Redis
// or anywhere else.
//
//	guard, err := redisfence.NewGuard(rdb)
//	…
//	_, err = guard.Do(ctx, "balance:42", lock.Token(), "SET", 1250) // fencing.ErrStale: somebody else has had the lock since
//
// Give data other keys than locks: package singlenode has Options.Prefix for that.
//
// # What is promised
//
// Check and write are one script on the server, so nothing comes between them. A server
// that has become a replica refuses both.
//
// The greatest token of a key, and the greatest number of its readers, are kept under
// "lockstile:f:{…}", in the key's Cluster slot, without an expiry. It is as durable as the data beside it: a
// restart from an old snapshot brings back both. Only a server that evicts keys
// without an expiry (maxmemory-policy allkeys-…) may lose the tokens alone.
//
// # What is not
//
// Only writes that go through the [Guard] are refused, and only the token of the
// key that [Guard.Do] is given is compared: commands that write other keys as well,
// such as RENAME and MSET, are not checked against the tokens of those. Neither key nor
// arguments may begin with "lockstile:", because the tokens and the bookkeeping of locks
// are there. Nothing else about a command is checked. A command that empties or swaps
// databases (FLUSHALL, FLUSHDB, SWAPDB) makes the guard forget: do not let strangers
// choose the command. The key of a lock on this server is the lock's name, so give the data
// another name. A command on a key that is a lock, or whose counter is still kept (an hour after
// the last lease and longer: see KeepCounter of package singlenode), is refused, as long as the
// user has the right to call EXISTS on "lockstile:t:*".
//
// A client that is set to retry may carry out a command twice when a reply was lost,
// here as everywhere in go-redis: use commands for which that is harmless, such as SET.
//
// # Requirements
//
// Redis 7.0 or later, or a fork that has its commands (Valkey); an older one is refused
// before anything is written. A user restricted by ACL needs "~lockstile:f:*" and the keys of the
// data, "+eval", "+evalsha", "+get", "+set" and the commands that are written and read with;
// "+command|info" for [Guard.Read]; and "+exists" with "%R~lockstile:t:*", without which data is
// written over a lock of the same name.
package redisfence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/hashslot"
	"github.com/lockstile/locker/internal/redisclient"
)

// Guard is a [fencing.SharedGuard] on Redis. A resource is a key.
type Guard struct{ rdb redis.UniversalClient }

var _ fencing.SharedGuard = (*Guard)(nil)

// NewGuard returns a Guard on rdb, which it never closes: a *redis.Client or a
// *redis.ClusterClient. Others are refused: a Ring asks another server when one is down,
// which knows no tokens, and what wraps a client may ask any.
func NewGuard(rdb redis.UniversalClient) (*Guard, error) {
	if err := redisclient.Usable(rdb); err != nil {
		return nil, fmt.Errorf("redisfence: %w", err)
	}
	return &Guard{rdb}, nil
}

const (
	// reserved begins all keys of ours that are not a lock.
	reserved = "lockstile:"

	// prefix begins the keys in which guards remember tokens.
	prefix = reserved + "f:"

	// counters begins the keys in which the locks on this server count their tokens, for an
	// hour or more after the last lease. They are in the slot of the lock's own key.
	counters = reserved + "t:"

	// mostArgs is less than the 8,000 values that a Lua function of Redis can be
	// called with. With more, the script would fail after it has written the token.
	mostArgs = 7000
)

// ErrInexact means that a command was carried out, and that its reply has an integer
// of 2^53 or more, or of -2^53 or less. Scripts of Redis round such numbers, so the
// reply is not returned. Commands that reply with text, such as GET, are exact.
var ErrInexact = errors.New("the command was carried out, but a script of Redis does not return integers beyond 2^53 exactly: read them as text, with GET")

// guarded compares tokens as text of one width, for Lua's numbers are exact only
// below 2^53. It keeps the greatest token that wrote, and after it the greatest number that
// has read since. A write's token is not smaller than the numbers that read before it, and
// shuts out what they would. A reader's is written each time, too, for a replica accepts no
// write. If the counter of a lock of that name exists, the key is the lock's. The counter is
// asked for by pcall, and is not among KEYS: a user without a right to it can still write. The
// arguments are checked here and not before they are sent, because the client makes text of
// values of many types.
var guarded = redis.NewScript(guardedText)

const guardedText = redisclient.Since7 + `
local mine, kind, counter, command = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if command and redis.pcall('EXISTS', counter) == 1 then
  return redis.error_reply('ERR it is the name of a lock on this server, and the key of that name is the lock: give the data another name')
end
for i = 5, #ARGV do
  if string.sub(ARGV[i], 1, 10) == 'lockstile:' then
    return redis.error_reply('ERR arguments that begin with "lockstile:" are refused: keys that do are Lockstile\'s own')
  end
end
local marks = redis.call('GET', KEYS[2]) or ''
local written, read = string.sub(marks, 1, 20), string.sub(marks, 22)
local seen = written
if kind == 'write' and read > seen then seen = read end
if mine < seen then return {0, seen} end
if kind == 'write' then
  marks = mine
else
  local reads = not command
  local answer = command and redis.pcall('COMMAND', 'INFO', command) or {}
  if answer.err then
    return redis.error_reply('ERR the user has to be allowed to ask whether a command only reads (ACL: +command|info): ' .. answer.err)
  end
  local info = answer[1]
  for _, flag in ipairs(info and info[3] or {}) do reads = reads or flag.ok == 'readonly' end
  if not reads then
    return redis.error_reply('ERR ' .. command .. ' is not a command that only reads, and a shared lock opens no write')
  end
  if written == '' then written = string.rep('0', 20) end
  if mine > read then read = mine end
  marks = written .. ' ' .. read
end
redis.call('SET', KEYS[2], marks)
if not command then return {1} end
return {1, redis.call(command, KEYS[1], unpack(ARGV, 5))}
`

// Check implements [fencing.Guard].
func (g *Guard) Check(ctx context.Context, resource string, token fencing.Token) error {
	_, err := g.run(ctx, "check", fencing.StaleError{Resource: resource, Token: token})
	return err
}

// CheckShared implements [fencing.SharedGuard].
func (g *Guard) CheckShared(ctx context.Context, resource string, token fencing.SharedToken) error {
	_, err := g.run(ctx, "check", fencing.StaleError{Resource: resource, Token: fencing.Token(token), Reader: true})
	return err
}

// Do runs one Redis command on key, unless token is stale: Do(ctx, "balance",
// token, "SET", 42) is SET balance 42. It returns the command's reply, or nil if
// that is null. After a [fencing.ErrStale] nothing has happened; after an [ErrInexact]
// the command has been carried out. If the server itself refuses the command
// (WRONGTYPE, for example, or a command that it does not know), only the token was
// written, and stays remembered. After a network error it may have happened.
//
// A command has 7,000 further arguments at most, and neither they nor key may begin
// with "lockstile:"; otherwise nothing is written and no token remembered.
func (g *Guard) Do(ctx context.Context, key string, token fencing.Token, command string, args ...any) (any, error) {
	return g.command(ctx, "write", fencing.StaleError{Resource: key, Token: token}, command, args)
}

// Read runs one Redis command on key with a reader's number, as Do does with a writer's
// token. The command must be one that Redis flags as "readonly" (see COMMAND INFO); with
// any other, nothing is written and no number remembered.
func (g *Guard) Read(ctx context.Context, key string, token fencing.SharedToken, command string, args ...any) (any, error) {
	return g.command(ctx, "read", fencing.StaleError{Resource: key, Token: fencing.Token(token), Reader: true}, command, args)
}

func (g *Guard) command(ctx context.Context, verb string, mine fencing.StaleError, command string, args []any) (any, error) {
	switch key := mine.Resource; {
	case command == "":
		return nil, fmt.Errorf("redisfence: %s %.100q: the command is empty", verb, key)
	case strings.HasPrefix(key, reserved): // it could change what was seen of another key
		return nil, fmt.Errorf("redisfence: %s %.100q: keys that begin with %q are Lockstile's own", verb, key, reserved)
	case len(args) > mostArgs:
		return nil, fmt.Errorf("redisfence: %s %.100q: the command has %d arguments, and the most is %d: divide it", verb, key, len(args), mostArgs)
	}
	return g.run(ctx, verb, mine, append([]any{command}, args...)...)
}

func (g *Guard) run(ctx context.Context, verb string, mine fencing.StaleError, command ...any) (any, error) {
	key, kind := mine.Resource, "write"
	if mine.Reader {
		kind = "read"
	}
	if mine.Token == 0 {
		return nil, fmt.Errorf("redisfence: %s %.100q: %w", verb, key, fencing.ErrZeroToken)
	}
	args := append([]any{fmt.Sprintf("%020d", mine.Token), kind, hashslot.Beside(counters, key)}, command...)
	reply, err := guarded.Run(ctx, g.rdb, []string{key, hashslot.Beside(prefix, key)}, args...).Slice()
	if err != nil {
		return nil, fmt.Errorf("redisfence: %s %.100q: %w", verb, key, err)
	}
	if len(reply) == 2 && reply[0] == int64(0) {
		if mine.Seen, err = parse(reply[1]); err != nil {
			return nil, fmt.Errorf("redisfence: %s %.100q: %w", verb, key, err)
		}
		return nil, fmt.Errorf("redisfence: %s: %w", verb, &mine)
	}
	if len(reply) < 2 {
		return nil, nil
	}
	if !exact(reply[1]) {
		return nil, fmt.Errorf("redisfence: %s %.100q: %w", verb, key, ErrInexact)
	}
	return reply[1], nil
}

// exact reports whether no integer of the reply can have been rounded. 2^53 itself can:
// 2^53 + 1 becomes it.
func exact(reply any) bool {
	switch r := reply.(type) {
	case int64:
		return -1<<53 < r && r < 1<<53
	case []any:
		return !slices.ContainsFunc(r, func(element any) bool { return !exact(element) })
	}
	return true
}

func parse(reply any) (fencing.Token, error) {
	text, ok := reply.(string)
	if !ok {
		return 0, errors.New("the server gave an answer of an unknown form")
	}
	return fencing.ParseToken(text)
}

// Counter is a [fencing.Counter] on Redis, for locks in a store that has no
// tokens of its own, or for tokens that several kinds of locks share.
type Counter struct{ rdb redis.UniversalClient }

var _ fencing.Counter = (*Counter)(nil)

// NewCounter returns a Counter on rdb, which it never closes. It takes what NewGuard
// takes.
func NewCounter(rdb redis.UniversalClient) (*Counter, error) {
	if err := redisclient.Usable(rdb); err != nil {
		return nil, fmt.Errorf("redisfence: %w", err)
	}
	return &Counter{rdb}, nil
}

// next is INCR, lifted to the server's clock in microseconds, so that a counter
// that was lost does not go back unless the clock did so too (a hybrid logical
// clock, Kulkarni et al., 2014). It refuses a counter that was set beyond what Lua
// counts exactly, which would give one number to many.
var next = redis.NewScript(nextText)

const nextText = redisclient.Since7 + `
local token = redis.call('INCR', KEYS[1])
if token >= 9007199254740992 then
  return redis.error_reply('ERR the counter ' .. KEYS[1] .. ' is beyond 2^53')
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if token < now then
  token = now
  redis.call('SET', KEYS[1], string.format('%.0f', now))
end
return token
`

// Next implements [fencing.Counter], in one round trip.
func (c *Counter) Next(ctx context.Context, name string) (fencing.Token, error) {
	token, err := next.Run(ctx, c.rdb, []string{hashslot.Beside(reserved+"c:", name)}).Int64()
	if err != nil {
		return 0, fmt.Errorf("redisfence: next token of %.100q: %w", name, err)
	}
	return fencing.Token(token), nil
}
