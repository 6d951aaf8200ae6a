package doctor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/singlenode"
)

// Redis looks at the server, or at each master of the Cluster, on which package
// singlenode keeps locks.
func Redis(ctx context.Context, r *Report, rdb redis.UniversalClient, opts singlenode.Options) error {
	own := opts.Prefix
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return redisCluster(ctx, r, cluster, opts)
	}
	n, err := meet(ctx, r, rdb, addrOf(rdb))
	if err != nil {
		return err
	}
	n.server()
	n.durability()
	n.replicas(opts.Replicas)
	n.foreignCluster()
	n.access(ctx, rdb, own)
	return nil
}

// redisCluster asks each master by itself; the lock's scripts run on the one
// that has their key's slot.
func redisCluster(ctx context.Context, r *Report, cluster *redis.ClusterClient, opts singlenode.Options) error {
	var mu sync.Mutex // masters are asked at the same time
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
		n, err := meet(ctx, &Report{}, rdb, addrOf(rdb))
		if err != nil {
			return fmt.Errorf("%s: %w", addrOf(rdb), err)
		}
		n.server()
		n.durability()
		n.replicas(opts.Replicas)
		n.cluster(ctx)
		mu.Lock()
		defer mu.Unlock()
		r.Findings = append(r.Findings, n.Findings...)
		r.Checked = append(r.Checked, n.Checked...)
		return nil
	})
	if err != nil {
		return err
	}
	n := &redisNode{at: r.at("the cluster"), rdb: cluster}
	n.access(ctx, cluster, opts.Prefix)
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
	rdb    redis.UniversalClient
	info   map[string]string
	config map[string]string // what it lets us see of its configuration
	up     time.Duration
	ahead  time.Duration // of our clock
	error  time.Duration // of that

	voted    time.Duration // the max_ttl for which it remembers that it may vote; 0: none
	votedRun string        // which server process that was
}

// meet asks a server about itself. Some users may not ask: then little can be
// said.
func meet(ctx context.Context, r *Report, rdb redis.UniversalClient, where string) (*redisNode, error) {
	n := &redisNode{at: r.at(where), rdb: rdb, info: map[string]string{}, config: map[string]string{}}
	sent := time.Now()
	now, err := rdb.Time(ctx).Result()
	took := time.Since(sent)
	switch {
	case err == nil:
		n.ahead, n.error = now.Sub(sent.Add(took/2)), took/2
	case !refused(err), unknown(err):
		return nil, err
	}
	text, err := rdb.Info(ctx).Result()
	switch {
	case refused(err):
		n.blind("INFO", err, "grant the user of the doctor +info: ACL SETUSER … +info")
	case err != nil:
		return nil, err
	default:
		n.info = infoOf(text)
	}
	return n, n.configuration(ctx)
}

// refused reports whether the server answered, and said no.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// unknown reports whether the server does not know us, and so answers nothing.
func unknown(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH")
}

func (n *redisNode) configuration(ctx context.Context) error {
	for _, name := range []string{"appendfsync", "save", "timeout", "tcp-keepalive", "cluster-allow-reads-when-down"} {
		values, err := n.rdb.ConfigGet(ctx, name).Result()
		switch {
		case refused(err):
			n.blind("CONFIG", err, "grant the user of the doctor +config|get, or look for appendfsync, save, timeout and tcp-keepalive yourself")
			return nil
		case err != nil:
			return err
		}
		for k, v := range values {
			n.config[k] = v
		}
	}
	return nil
}
