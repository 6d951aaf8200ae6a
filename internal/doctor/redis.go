package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/dial"
)

// redis looks at the server, or at each master of the Cluster, on which package
// singlenode keeps locks.
func (r *Report) redis(ctx context.Context, b *dial.Redis) error {
	cluster, ok := b.Client.(*redis.ClusterClient)
	if !ok {
		server := b.Client.(*redis.Client) // singlenode takes no other
		n, err := r.node(ctx, server)
		if err != nil {
			return err
		}
		n.alone()
		n.durability()
		n.replicas(ctx, b.Options.Replicas)
		n.clocks(ctx, server)
		n.access(ctx, b.Options.Prefix)
		return nil
	}
	var mu sync.Mutex // masters are asked at the same time
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		n, err := r.node(ctx, master)
		if err != nil {
			return fmt.Errorf("%s: %w", addrOf(master), err)
		}
		n.durability()
		n.replicas(ctx, b.Options.Replicas)
		n.clocks(ctx, master)
		return nil
	})
	if err != nil {
		return err
	}
	n := &redisNode{at: r.at("the cluster"), rdb: cluster}
	n.access(ctx, b.Options.Prefix)
	return nil
}

func addrOf(rdb redis.UniversalClient) string {
	if c, ok := rdb.(*redis.Client); ok {
		return c.Options().Addr
	}
	return "redis"
}

// redisNode is one server, with what it says of itself.
type redisNode struct {
	at
	rdb         redis.UniversalClient
	info        map[string]string // nil where the user may not ask
	appendfsync string
}

// node asks a server about itself.
func (r *Report) node(ctx context.Context, rdb redis.UniversalClient) (*redisNode, error) {
	n := &redisNode{at: r.at(addrOf(rdb)), rdb: rdb, appendfsync: "unknown"}
	text, err := rdb.Info(ctx).Result()
	switch {
	case refused(err):
		n.found("unseen", "INFO", err)
		return n, nil
	case err != nil:
		return nil, err
	}
	n.info = pairs(text, ":")
	config, err := rdb.ConfigGet(ctx, "appendfsync").Result()
	switch {
	case refused(err):
		n.found("unseen", "CONFIG", err)
	case err != nil:
		return nil, err
	default:
		n.appendfsync = config["appendfsync"]
	}
	n.state()
	return n, nil
}

// state looks at what every server has to be.
func (n *redisNode) state() {
	if before(n.info["redis_version"], 7, 0) {
		n.found("redis-version", n.info["redis_version"])
	}
	// A lock and its counter are keys with an expiry: volatile policies evict them, too.
	if limit, policy := n.number("maxmemory"), n.info["maxmemory_policy"]; limit > 0 && policy != "noeviction" {
		n.found("redis-evicts", limit>>20, policy)
	}
	if n.replica() {
		n.found("redis-replica", n.info["master_host"], n.info["master_port"])
	}
	n.checked("version %s, role %s, eviction", n.info["redis_version"], n.info["role"])
}

// refused reports whether the server knows us, and does not let us ask this.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !redis.HasErrorPrefix(err, "WRONGPASS") && !redis.HasErrorPrefix(err, "NOAUTH")
}

func (n *redisNode) number(name string) int64 {
	v, err := strconv.ParseInt(n.info[name], 10, 64)
	if err != nil {
		return 0 // the server does not have it
	}
	return v
}

func (n *redisNode) replica() bool { return n.info["role"] == "slave" }

// alone: a client of one server does not follow a Cluster's redirects.
func (n *redisNode) alone() {
	if n.info["cluster_enabled"] == "1" {
		n.found("redis-in-cluster")
	}
}

// durable: with an append-only file the server has written, though not synced, what
// it answers.
func (n *redisNode) durable() bool { return n.info["aof_enabled"] == "1" && n.appendfsync == "always" }

// durability says what a crash does to locks that are held.
func (n *redisNode) durability() {
	switch {
	case n.info == nil:
		return
	case n.info["aof_enabled"] != "1":
		n.found("redis-forgets")
	case !n.durable():
		n.found("redis-syncs-late", n.appendfsync)
	}
	n.checked("persistence (appendfsync %s)", n.appendfsync)
}

// replicas: a failover promotes one, and a grant that it has not received is
// forgotten.
func (n *redisNode) replicas(ctx context.Context, confirm int) {
	if n.replica() {
		return
	}
	if confirm > 0 { // else no lock needs it
		if err := n.rdb.Do(ctx, "WAIT", 0, 1).Err(); refused(err) {
			n.found("redis-rights", "the confirmation of replicas", "WAIT: "+err.Error())
		}
	}
	if n.info == nil {
		return
	}
	switch have := int(n.number("connected_slaves")); {
	case have > confirm:
		n.found("redis-failover", have, confirm)
	case have < confirm:
		n.found("redis-unconfirmed", have, confirm)
	}
	n.checked("replicas, of which %d must confirm", confirm)
}

// clocks compares the clocks of a master and of its replicas, which have each lease as the
// time of its end.
func (n *redisNode) clocks(ctx context.Context, master *redis.Client) {
	if n.info == nil || n.replica() {
		return
	}
	own, err := readClock(ctx, master)
	if err != nil {
		n.found("unseen", "TIME", err)
		return
	}
	for i := range n.number("connected_slaves") {
		fields := pairs(strings.ReplaceAll(n.info[fmt.Sprint("slave", i)], ",", "\n"), "=")
		addr := net.JoinHostPort(fields["ip"], fields["port"])
		rdb := replicaOf(master, addr)
		its, err := readClock(ctx, rdb)
		_ = rdb.Close() // a connection of its own
		apart := its.apart(own)
		switch {
		case err != nil:
			n.found("unseen", "the clock of its replica "+addr, err)
		case apart > driver.Drift(locker.DefaultTTL):
			n.found("redis-clocks", addr, apart.Round(time.Millisecond))
		}
		n.checked("the clock of %s", addr)
	}
}

// replicaOf returns a client of a replica, which has the same users as its master.
func replicaOf(master *redis.Client, addr string) *redis.Client {
	has := master.Options()
	return redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		Username: has.Username, Password: has.Password, TLSConfig: has.TLSConfig,
		DialTimeout: has.DialTimeout, ReadTimeout: has.ReadTimeout, WriteTimeout: has.WriteTimeout,
	})
}

// clockReading is what a server's clock showed.
type clockReading struct {
	ahead, accuracy time.Duration // as against ours
}

// readClock reads a server's clock three times, and returns the reading that took least.
func readClock(ctx context.Context, rdb redis.UniversalClient) (best clockReading, err error) {
	for i := range 3 {
		sent := time.Now()
		now, err := rdb.Time(ctx).Result()
		if err != nil {
			return best, err
		}
		if took := time.Since(sent); i == 0 || took/2 < best.accuracy {
			best = clockReading{now.Sub(sent.Add(took / 2)), took / 2}
		}
	}
	return best, nil
}

// apart is how far apart two clocks are, at least.
func (r clockReading) apart(other clockReading) time.Duration {
	return max(0, (r.ahead-other.ahead).Abs()-r.accuracy-other.accuracy)
}

// probe tries commands that the locks' scripts call, so that no key is made, and
// answers what went wrong. HSET would make one: the server only says whether it is allowed.
const probe = `
local bad, key = {}, KEYS[1]
local calls = {{'GET', key}, {'EXISTS', key}, {'PTTL', key}, {'PEXPIRE', key, 1}, {'SET', key, '', 'XX'}, {'DEL', key}}
if ARGV[1] ~= '' then
  calls = {{'ZADD', key, 'XX', 1, ''}, {'ZREM', key, ''}, {'ZRANK', key, ''}, {'ZRANGE', key, 0, 0}, {'ZCARD', key},
    {'ZSCORE', key, ''}, {'ZMSCORE', key, ''}, {'HGET', key, ''}, {'HEXISTS', key, ''}, {'HMGET', key, ''}, {'HVALS', key}, {'ZSCAN', key, 0}, {'HDEL', key, ''},
    {'ZREMRANGEBYSCORE', key, 0, 0}, {'PEXPIREAT', key, 1}, {'TIME'}, {'PUBLISH', ARGV[1], ''}, unpack(calls)}
end
for _, call in ipairs(calls) do
  local reply = redis.pcall(unpack(call))
  if type(reply) == 'table' and reply.err then bad[#bad + 1] = call[1] .. ': ' .. reply.err end
end
if redis.acl_check_cmd and not redis.acl_check_cmd('HSET', key, '', '') then bad[#bad + 1] = 'HSET: NOPERM' end
return bad
`

// access looks at whether the user that we connect as may do all that locks need.
func (n *redisNode) access(ctx context.Context, prefix string) {
	if n.replica() || n.info["cluster_enabled"] == "1" {
		return // which refuses for another reason
	}
	name := rand.Text()
	channel := "lockstile:w:" + name
	n.try(ctx, "the locks' bookkeeping", "lockstile:doctor:"+name, channel)
	if prefix != "" { // else the names are anybody's guess
		n.try(ctx, "locks themselves", prefix+name, "")
	}
	sub := n.rdb.Subscribe(ctx, channel)
	switch _, err := sub.Receive(ctx); {
	case err != nil && missesRight(err.Error()):
		n.found("redis-subscribe", err)
	case err != nil:
		n.found("unseen", "whether the user may subscribe", err)
	}
	_ = sub.Close() // a connection of its own
	n.checked("access of the user")
}

func (n *redisNode) try(ctx context.Context, what, key, channel string) {
	bad, err := n.rdb.Eval(ctx, probe, []string{key}, channel).StringSlice()
	if err == nil && len(bad) == 0 {
		err = n.rdb.EvalSha(ctx, redis.NewScript(probe).Hash(), []string{key}, channel).Err()
	}
	if err != nil {
		bad = append(bad, err.Error())
	}
	var lacks []string
	for _, reply := range bad {
		switch {
		case !missesRight(reply):
			n.found("unseen", "the user's rights on "+what, reply)
			return
		case strings.HasPrefix(reply, "PUBLISH: "):
			n.found("redis-publish", reply)
		default:
			lacks = append(lacks, reply)
		}
	}
	if len(lacks) > 0 {
		n.found("redis-rights", what, strings.Join(lacks, "; "))
	}
}

// missesRight tells a refusal by the user's rights from one that passes, as BUSY does, or has
// another reason. Scripts of Redis 7 say it in other words than NOPERM.
func missesRight(reply string) bool {
	return strings.Contains(reply, "NOPERM") || strings.Contains(reply, "can't run this command") || strings.Contains(reply, "can't publish")
}
