package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// probe tries every command that the locks' scripts call, on a key that does not
// exist and so that none is made, and answers what went wrong.
const probe = `
local bad = {}
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then bad[#bad + 1] = ({...})[1] .. ': ' .. reply.err end
end
local key = KEYS[1]
try('GET', key)
try('EXISTS', key)
try('PTTL', key)
try('PEXPIRE', key, 1)
try('SET', key, '', 'XX')
try('DEL', key)
if ARGV[1] == 'lock' then return bad end
try('ZADD', key, 'XX', 1, '')
try('ZREM', key, '')
try('ZRANK', key, '')
try('ZRANGE', key, 0, 0)
try('ZCARD', key)
try('ZPOPMIN', key)
try('TIME')
try('PUBLISH', ARGV[1], '')
return bad
`

// access looks at whether the user that we connect as may do all that locks
// need.
func (n *redisNode) access(ctx context.Context, rdb redis.UniversalClient, prefix string) {
	if n.info["role"] == "slave" {
		return // which refuses for another reason
	}
	name := rand.Text()
	channel := "lockstile:w:" + name
	n.tries(ctx, rdb, "the locks' bookkeeping", "lockstile:doctor:"+name, channel, "~lockstile:* &lockstile:*")
	if prefix != "" { // else the names are anybody's guess
		n.tries(ctx, rdb, "locks themselves", prefix+name, "lock", "~"+prefix+"*")
	}
	sub := rdb.Subscribe(ctx, channel)
	_, err := sub.Receive(ctx)
	if err := sub.Close(); err != nil {
		n.blind("the subscription", err, "")
	}
	if err != nil {
		n.danger(fmt.Sprintf("the user may not subscribe to lockstile:*: %v", err),
			"nobody can wait for a lock: only TryLock works", "ACL SETUSER … +subscribe &lockstile:*")
	}
	n.checked("access of the user")
}

func (n *redisNode) tries(ctx context.Context, rdb redis.UniversalClient, what, key, channel, rule string) {
	const commands = "+@scripting +@read +@write +@pubsub +@fast"
	bad, err := rdb.Eval(ctx, probe, []string{key}, channel).StringSlice()
	if err == nil && len(bad) == 0 {
		err = rdb.EvalSha(ctx, redis.NewScript(probe).Hash(), []string{key}, channel).Err()
	}
	if err != nil {
		bad = append(bad, err.Error())
	}
	if len(bad) == 0 {
		return
	}
	n.danger(fmt.Sprintf("the user lacks rights for %s: %s", what, strings.Join(bad, "; ")),
		"locks are refused", "ACL SETUSER … "+rule+" "+commands)
}
