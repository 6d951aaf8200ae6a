package redisnode

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/driver"
)

const (
	// scanCount is how many keys the server goes through for one request of a scan.
	scanCount = 1000
	// lookCount is how many names are looked at in one round trip.
	lookCount = 500
)

// List looks at the names that begin with prefix, and returns those that are held. It
// finds names by their counters, so none that only clients of other libraries have
// locked. The server goes through all of its keys.
func (n *Node) List(ctx context.Context, prefix string) ([]View, error) {
	found, err := n.find(ctx, prefix)
	if err != nil {
		return nil, n.learn(err)
	}
	var held []View
	for some := range slices.Chunk(slices.Collect(maps.Values(found)), lookCount) {
		for i, a := range n.sendAll(ctx, n.rdb, 0, requests(some, lookByText)) {
			if a.err != nil && redis.HasErrorPrefix(a.err, "WRONGTYPE") { // the key is something else by now
				continue
			}
			if a.err != nil {
				return nil, a.err
			}
			v, err := view(some[i], a.reply)
			if nextPage(a.reply) != "0" { // it has many holders
				v, err = n.Look(ctx, some[i])
			}
			if err != nil {
				return nil, err
			}
			if v.Held {
				held = append(held, v)
			}
		}
	}
	return held, nil
}

// lookByText is a look as text: where the server does not know the script yet, all of a
// batch would have to be sent again.
func lookByText(k Keys) request {
	req := k.look("0")
	req.args[0], req.args[1] = "eval", req.script.text
	return req
}

// find returns the keys of the names that begin with prefix and have a counter. A Cluster
// may show a key on two masters while its slot moves.
func (n *Node) find(ctx context.Context, prefix string) (map[string]Keys, error) {
	_, err := call(ctx, n.ends, func() (any, error) {
		return nil, n.rewritten(ctx, counters+"any}", "a server lists the keys that it has")
	})
	if err != nil {
		return nil, err
	}
	found := make(map[string]Keys)
	var mu sync.Mutex
	add := func(page []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range page {
			if keys, ok := keysOfCounter(key); ok && strings.HasPrefix(keys.Lock, prefix) {
				found[keys.Lock] = keys
			}
		}
	}
	match := counters + "*" + globEscape.Replace(prefix) + "*"
	if n.cluster == nil {
		return found, n.scan(ctx, n.rdb, match, add)
	}
	return found, n.cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		return driver.Caught(func() error { return n.scan(ctx, master, match, add) }) // the client calls it in a goroutine of its own
	})
}

// globEscape makes a pattern of SCAN that stands for itself.
var globEscape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// scan passes on all keys of a server that match, some of them twice.
func (n *Node) scan(ctx context.Context, rdb redis.Cmdable, match string, add func(page []string)) error {
	type page struct {
		keys []string
		next uint64
	}
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		at := cursor // a request that is given up may still read it
		p, err := call(ctx, n.ends, func() (p page, err error) {
			p.keys, p.next, err = rdb.Scan(ctx, at, match, scanCount).Result()
			return p, err
		})
		if err != nil {
			return err
		}
		add(p.keys)
		cursor = p.next
	}
	return nil
}
