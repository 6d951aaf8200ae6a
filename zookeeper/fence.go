package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/zkclient"
)

// fence is an ephemeral node of the Locker's own, one for each session. Every
// request that makes a place in a queue carries a check of its version, so:
//
//   - a request that the zk client has kept back until after the session ended
//     fails, for the fence is gone;
//   - a request whose reply was lost fails for good once the version has been
//     raised, wherever it has been delayed. Only then does the removal of what
//     it may have left mean anything.
type fence struct {
	path    string
	session int64
	version int32
}

// op is the check that a request carries.
func (f fence) op() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: f.path, Version: f.version}
}

// raise makes every request fail that was sent before with this fence. A fence
// that is gone has done so for ever.
func (l *Locker) raise(ctx context.Context, f fence) error {
	stat, err := zkclient.Call(ctx, l.zk, func() (*zk.Stat, error) { return l.zk.Set(f.path, nil, -1) })
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case err != nil:
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fence.path == f.path {
		l.fence.version = max(l.fence.version, stat.Version)
	}
	return nil
}

// currentFence returns the fence of the session that the client has now, and
// makes it where there is none. stale is one that a request has failed on.
func (l *Locker) currentFence(ctx context.Context, stale fence) (fence, error) {
	if f := l.lastFence(); f != stale && l.current(f.session) {
		return f, nil
	}
	select { // one goroutine makes it, the others wait for it
	case l.fencing <- struct{}{}:
		defer func() { <-l.fencing }()
	case <-ctx.Done():
		return fence{}, context.Cause(ctx)
	}
	f := l.lastFence()
	if f != stale && l.current(f.session) {
		return f, nil
	}
	if l.current(f.session) {
		if again, err := l.lookAtFence(ctx, f.path); err == nil || !errors.Is(err, zk.ErrNoNode) {
			return l.keepFence(again, err)
		}
	}
	return l.keepFence(l.newFence(ctx))
}

func (l *Locker) lastFence() fence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fence
}

// current reports whether the client, as far as it knows, still has a session.
func (l *Locker) current(session int64) bool {
	return session != 0 && session == l.zk.SessionID()
}

func (l *Locker) keepFence(f fence, err error) (fence, error) {
	if err != nil {
		return fence{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fence = f
	return f, nil
}

// lookAtFence reads its version, which a late request may have raised, and which
// session it belongs to: the server alone knows for sure.
func (l *Locker) lookAtFence(ctx context.Context, path string) (fence, error) {
	stat, err := zkclient.Call(ctx, l.zk, func() (*zk.Stat, error) {
		_, stat, err := l.zk.Get(path)
		return stat, err
	})
	if err != nil {
		return fence{}, err
	}
	return fence{path, stat.EphemeralOwner, stat.Version}, nil
}

// newFence makes a fence. Its percent sign keeps it apart from every escaped
// name. One whose reply is lost is harmless, and ends with the session.
func (l *Locker) newFence(ctx context.Context) (fence, error) {
	path := l.base + "/%session-" + newGUID()
	err := l.zk.WithParents(ctx, path, func() error {
		return zkclient.Act(ctx, l.zk, func() error {
			_, err := l.zk.Create(path, nil, zk.FlagEphemeral, l.acl)
			return err
		})
	})
	if err != nil {
		return fence{}, err
	}
	return l.lookAtFence(ctx, path)
}

// timeout returns the session timeout, and waits for a connection if none has
// ever told it.
func (l *Locker) timeout(ctx context.Context) (time.Duration, error) {
	if l.session == nil {
		return l.sessionTimeout, nil
	}
	if t := l.session.Timeout(); t != 0 {
		return t, nil
	}
	if err := zkclient.Act(ctx, l.zk, func() error { _, _, err := l.zk.Exists(l.base); return err }); err != nil {
		return 0, unavailable(err)
	}
	if t := l.session.Timeout(); t != 0 {
		return t, nil
	}
	return 0, fmt.Errorf("%w: the connection was not made with the Dial of Options.Session", locker.ErrUnavailable)
}
