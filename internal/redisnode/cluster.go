package redisnode

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// processAtMaster sends cmd to the master of key in a Cluster, and has replicas confirm it.
// WAIT has no key and counts what its connection wrote, so both go to the master's own
// client. That one does not follow redirects, and knows nothing of the Cluster's hooks.
func (n *Node) processAtMaster(ctx context.Context, cmd once, key string) (any, error) {
	if err := n.rewritten(ctx, key, "where replicas must confirm, a Cluster's hooks are passed by"); err != nil {
		return nil, err
	}
	master, err := n.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	var asking []once
	for redirects := 0; ; redirects++ {
		reply, err := n.processAndWait(ctx, master, cmd, asking...)
		if redirects == mostRedirects || !elsewhere(err) {
			return reply, err
		}
		if master, err = n.redirected(ctx, err, key); err != nil {
			return nil, err
		}
		asking = nil
		if _, ask := redis.IsAskError(cmd.Err()); ask {
			asking = []once{{redis.NewCmd(ctx, "asking")}}
		}
	}
}

// mostRedirects is how many redirects are followed, as go-redis does by default.
const mostRedirects = 3

// elsewhere reports whether err says that another server of the Cluster has the key.
// Nothing was carried out.
func elsewhere(err error) bool {
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask
}

// brackets takes them off: servers name addresses of IPv6 without, the client with them.
var brackets = strings.NewReplacer("[", "", "]", "")

// redirected returns the client of the master that err names, after it has asked for the
// Cluster's map anew.
func (n *Node) redirected(ctx context.Context, err error, key string) (*redis.Client, error) {
	addr, moved := redis.IsMovedError(err)
	if !moved {
		addr, _ = redis.IsAskError(err)
	}
	var named atomic.Pointer[redis.Client]
	err = n.cluster.ForEachShard(ctx, func(_ context.Context, server *redis.Client) error {
		if brackets.Replace(server.Options().Addr) == brackets.Replace(addr) {
			named.Store(server)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if server := named.Load(); server != nil {
		return server, nil
	}
	return n.cluster.MasterForKey(ctx, key) // the map may have another name for it
}

// rewritten returns an error if a hook of the client's rewrites keys, before anything is
// written. What replicas must confirm goes past the hooks of a Cluster's client, and would
// be another lock than what does not; and the keys that a server lists would be others than ours.
func (n *Node) rewritten(ctx context.Context, key, why string) error {
	if n.plain.Load() {
		return nil
	}
	cmd := once{redis.NewCmd(ctx, "eval", "return KEYS[1]", 1, key)}
	_ = n.rdb.Process(ctx, cmd)
	switch is, err := cmd.Text(); {
	case err != nil:
		return err
	case is != key:
		return refusal(fmt.Sprintf("a hook of the client's makes %q of the key %q, and %s: set Options.Prefix in place of the hook", is, key, why))
	}
	n.plain.Store(true)
	return nil
}
