package zookeeper

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/zkclient"
)

// anchor is an ephemeral node of the Locker's own, one for each session. Every
// request that makes a place in a queue checks that it is there. For the zk
// client keeps a request that it could not send, also until after the session
// has ended, and sends it in the next: a place would come of it that nobody
// knows of, in a session that lives on. Late requests of the same session need
// no such care: the servers drop what comes over a connection that was replaced.
type anchor struct {
	path    string
	session int64
}

// currentAnchor returns the anchor of the session that the client has now, and
// makes it where there is none. lost is one that a request did not find.
func (l *Locker) currentAnchor(ctx context.Context, lost anchor) (anchor, error) {
	if a := l.lastAnchor(); a != lost && l.current(a.session) {
		return a, nil
	}
	select { // one goroutine makes it, the others wait for it
	case l.anchoring <- struct{}{}:
		defer func() { <-l.anchoring }()
	case <-ctx.Done():
		return anchor{}, context.Cause(ctx)
	}
	if a := l.lastAnchor(); a != lost && l.current(a.session) {
		return a, nil
	}
	a, err := l.newAnchor(ctx)
	if err != nil {
		return anchor{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.anchor = a
	return a, nil
}

func (l *Locker) lastAnchor() anchor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.anchor
}

// current reports whether the client, as far as it knows, still has a session.
func (l *Locker) current(session int64) bool {
	return session != 0 && session == l.zk.SessionID()
}

// newAnchor makes an anchor. Its percent sign keeps it apart from every escaped
// name. Which session it belongs to is the server's to say: the client may just
// be changing. One whose reply is lost is harmless, and ends with the session.
func (l *Locker) newAnchor(ctx context.Context) (anchor, error) {
	if l.closing.Err() != nil {
		return anchor{}, locker.ErrClosed
	}
	guid := newGUID()
	path := l.base + "/%session-" + string(guid[:])
	err := l.zk.WithParents(ctx, path, func() error {
		return zkclient.Act(ctx, l.zk, func() error {
			_, err := l.zk.Create(path, nil, zk.FlagEphemeral, l.acl)
			return err
		})
	})
	if err != nil {
		return anchor{}, err
	}
	stat, err := zkclient.Call(ctx, l.zk, func() (*zk.Stat, error) {
		_, stat, err := l.zk.Get(path)
		return stat, err
	})
	if err != nil {
		return anchor{}, err
	}
	return anchor{path, stat.EphemeralOwner}, nil
}

// dropAnchor removes the anchor of a Locker that makes no more places: the session
// may outlive it by far.
func (l *Locker) dropAnchor() {
	a := l.lastAnchor()
	if !l.current(a.session) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	_ = l.zk.Remove(ctx, a.path) // it ends with the session otherwise
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
	ctx, stop := l.untilClosed(ctx)
	defer stop()
	if err := zkclient.Act(ctx, l.zk, func() error { _, _, err := l.zk.Exists(l.base); return err }); err != nil {
		return 0, unavailable(err)
	}
	if t := l.session.Timeout(); t != 0 {
		return t, nil
	}
	return 0, fmt.Errorf("%w: the connection was not made with the Dial of Options.Session", locker.ErrUnavailable)
}
