package redisnode

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// cached is what we know of the servers' caches of scripts. A server that has
// restarted has none of ours, nor has one that took another's place: asked for one
// by its hash, it answers NOSCRIPT and does nothing. Whoever does not hear that
// never sends the text.
//
// So what must be done though no answer ever comes is sent as text, in one request:
// a withdrawal always; a release until its server has answered one, and again after
// any NOSCRIPT. One case is left: nobody has told us that the server is another one,
// and the answer to the release is lost. The lock then stays until the withdrawal
// that follows every release without an answer.
type cached struct {
	mu       sync.Mutex
	flushes  int            // NOSCRIPTs heard so far, of any server
	releases map[string]int // by server: flushes, when it was sent a release that it has answered
}

// release reports whether the server is known to have the script of a release. The
// second result is for learn.
func (c *cached) release(server string) (known bool, flushes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.releases[server]
	return ok && at == c.flushes, c.flushes
}

// learn notes that the server has answered a release that was sent after so many
// flushes: one that came in between counts for more.
func (c *cached) learn(server string, flushes int) {
	if server == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.releases == nil {
		c.releases = make(map[string]int)
	}
	c.releases[server] = flushes
}

func (c *cached) flushed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushes++
}

// server names the server that a key's requests go to: each master of a Cluster
// has a cache of its own.
func (n *Node) server(ctx context.Context, key string) string {
	cluster, ok := n.rdb.(*redis.ClusterClient)
	if !ok {
		return "the only one"
	}
	master, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return "" // none is known
	}
	return master.Options().Addr
}

// eval runs the script by its hash, and by its text where the server may not have
// it and must not need a second request, or has said that it has not.
func (n *Node) eval(ctx context.Context, req request) (any, error) {
	switch req.script {
	case withdraw, force:
		return n.process(ctx, req, req.byText(ctx))
	case release:
		return n.evalRelease(ctx, req)
	}
	reply, err := n.process(ctx, req, req.bySum(ctx))
	if n.noScript(err) {
		return n.process(ctx, req, req.byText(ctx))
	}
	return reply, err
}

func (n *Node) evalRelease(ctx context.Context, req request) (any, error) {
	server := n.server(ctx, req.key())
	known, flushes := n.cached.release(server)
	if known {
		reply, err := n.process(ctx, req, req.bySum(ctx))
		if !n.noScript(err) {
			return reply, err
		}
		_, flushes = n.cached.release(server)
	}
	reply, err := n.process(ctx, req, req.byText(ctx))
	if err == nil {
		n.cached.learn(server, flushes)
	}
	return reply, err
}

// noScript reports whether the server has not seen the script since it started, and
// takes note of it.
func (n *Node) noScript(err error) bool {
	if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return false
	}
	n.cached.flushed()
	return true
}
