package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/zkclient"
)

// place is an attempt's node in a queue, or the node that a request whose reply
// is not known may have made.
type place struct {
	parent string
	prefix string // of its path: all but the number, which the server appends
	anchor anchor

	sent <-chan zkclient.Reply[[]zk.MultiResponse] // the request that makes it, until its reply is read

	path  string // "" if not known
	node  string // its last element
	token fencing.Token
	since locker.Instant // before the request that made or last confirmed it
	alone bool           // nobody else was there when it was made
	queue int64          // the zxid that made the parent, which tells it from one that is made later
}

func newPlace(parent string, at anchor) *place {
	guid := newGUID()
	return &place{parent: parent, prefix: parent + "/_c_" + string(guid[:]) + "-lock-", anchor: at}
}

// found notes under which path the place was found.
func (p *place) found(path string) { p.path, p.node = path, path[len(p.parent)+1:] }

// errGone means that a place has been removed: its session ended, or somebody
// deleted the node.
var errGone = errors.New("its node is gone")

// ops are the operations that make the place. The parent is written to because
// its Stat is the answer to everything: the zxid of this transaction, which is
// the token, and the number of its children.
func (p *place) ops(data []byte, acl []zk.ACL) []any {
	return []any{
		&zk.CheckVersionRequest{Path: p.anchor.path, Version: -1},
		&zk.CreateRequest{
			Path: p.prefix, Data: data, Acl: acl, Flags: zk.FlagEphemeralSequential,
		},
		&zk.SetDataRequest{Path: p.parent, Version: -1},
	}
}

// made notes the answer to ops.
func (p *place) made(results []zk.MultiResponse) error {
	created, parent := results[len(results)-2], results[len(results)-1]
	if !strings.HasPrefix(created.String, p.prefix) || parent.Stat == nil {
		return errors.New("the server gave an answer of an unknown form")
	}
	p.found(created.String)
	p.token = fencing.Token(parent.Stat.Mzxid)
	p.alone = parent.Stat.NumChildren == 1
	p.queue = parent.Stat.Czxid
	if !numbered(p.node) {
		return errUsedUp
	}
	return nil
}

// take makes a place at the end of the queue for a. Whenever it may have one,
// a.place is set, also after an error.
func (l *Locker) take(ctx context.Context, a *attempt) error {
	var lost anchor
	for range 3 { // a session that ends more often than that is none, and so with numbers
		if err := l.startAgain(ctx, a); err != nil {
			return err
		}
		at, err := l.currentAnchor(ctx, lost)
		if err != nil {
			return err
		}
		a.place = newPlace(a.parent, at)
		err = l.zk.WithParents(ctx, a.place.prefix, func() error { return l.tryTake(ctx, a.place, a.data) })
		switch {
		case errors.Is(err, errAnchor):
			lost, a.place = at, nil
		case errors.Is(err, errUsedUp):
			a.usedUp = a.place.queue
			if !l.withdraw(ctx, a.place) {
				a.former = a.place
			}
			a.place = nil
		default:
			if zkclient.Refused(err) || errors.Is(err, zk.ErrNoServer) { // the latter was never sent
				a.place = nil
			}
			return err
		}
	}
	return errors.New("sessions and queues end as fast as they begin")
}

// errUsedUp means that a place has got no number of its own: see numbered.
var errUsedUp = errors.New("its queue has no numbers left and starts again once it is empty")

// startAgain removes a queue that has no numbers left for a, for the next one
// begins at zero. The server refuses while there is a place in it, so none is
// overtaken. Nobody makes places meanwhile, which could go on for ever.
func (l *Locker) startAgain(ctx context.Context, a *attempt) error {
	if a.usedUp == 0 {
		return nil
	}
	places := 0
	queue, err := zkclient.Call(ctx, l.zk, func() (int64, error) {
		children, stat, err := l.zk.Children(a.parent)
		if err != nil {
			return 0, err
		}
		places, _, _ = inLine(children, "")
		return stat.Czxid, nil
	})
	if err == nil && queue == a.usedUp { // else somebody else has removed it
		err = l.zk.Remove(ctx, a.parent)
	}
	switch {
	case errors.Is(err, zk.ErrNotEmpty) && places > 0:
		return fmt.Errorf("%w: %w", locker.ErrTaken, errUsedUp)
	case errors.Is(err, zk.ErrNotEmpty):
		return unavailable(fmt.Errorf("%w, and something else is below %q: remove it", errUsedUp, a.parent))
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return err
	}
	a.usedUp = 0
	return nil
}

// errAnchor means that the session that a request was made for has ended.
var errAnchor = errors.New("its session has ended")

func (l *Locker) tryTake(ctx context.Context, p *place, data []byte) error {
	failed, err := l.send(ctx, p, p.ops(data, l.acl))
	if failed == 0 && errors.Is(err, zk.ErrNoNode) {
		return errAnchor
	}
	return err
}

// send sends the operations that end with those that make p.
func (l *Locker) send(ctx context.Context, p *place, ops []any) (failed int, err error) {
	p.since = locker.Now()
	p.sent = zkclient.Async(ctx, l.zk, func() ([]zk.MultiResponse, error) { return l.zk.Conn.Multi(ops...) })
	return p.settle(ctx)
}

// settle waits for the reply to the request that makes the place. When ctx ends
// first, another settle waits on.
func (p *place) settle(ctx context.Context) (failed int, err error) {
	if p.sent == nil {
		return -1, nil
	}
	select {
	case r := <-p.sent:
		p.sent = nil
		failed, err := zkclient.Failed(r.Value, r.Err)
		if err == nil {
			err = p.made(r.Value)
		}
		return failed, err
	case <-ctx.Done():
		return -1, context.Cause(ctx)
	}
}

// confirm asks whether the place is still there, for validity to count from
// before the question. It is a transaction, not a read: a server that has lost
// its leader goes on answering reads while the leader ends the session and lets
// the next waiter in.
func (l *Locker) confirm(ctx context.Context, p *place) <-chan zkclient.Reply[[]zk.MultiResponse] {
	return zkclient.Async(ctx, l.zk, func() ([]zk.MultiResponse, error) {
		return l.zk.Conn.Multi(&zk.CheckVersionRequest{Path: p.path, Version: -1})
	})
}

// children lists a queue.
func (l *Locker) children(ctx context.Context, parent string) ([]string, error) {
	return zkclient.Call(ctx, l.zk, func() ([]string, error) {
		children, _, err := l.zk.Children(parent)
		return children, err
	})
}

// latest lists a queue as it is now: the server catches up first. One that the
// client has changed to may lag behind the one that carried its last request out.
func (l *Locker) latest(ctx context.Context, parent string) ([]string, error) {
	err := zkclient.Act(ctx, l.zk, func() error { _, err := l.zk.Sync(parent); return err })
	if err != nil {
		return nil, err
	}
	return l.children(ctx, parent)
}

// remove removes a place, or what may be there of it. Nil means that nothing is
// left and that nothing can come later; errGone that there was nothing.
func (l *Locker) remove(ctx context.Context, p *place) error {
	// A request that has not got as far as the connection could be overtaken by
	// the look for what it left.
	if _, err := p.settle(ctx); p.sent != nil {
		return err
	}
	if p.path != "" {
		err := l.zk.Remove(ctx, p.path)
		if errors.Is(err, zk.ErrNoNode) {
			return errGone
		}
		return err
	}
	children, err := l.latest(ctx, p.parent)
	if errors.Is(err, zk.ErrNoNode) {
		return errGone
	}
	for _, node := range children {
		if path := p.parent + "/" + node; strings.HasPrefix(path, p.prefix) {
			p.found(path)
			return l.remove(ctx, p)
		}
	}
	if err != nil {
		return err
	}
	return errGone
}

// handOver removes a place and makes another for the next goroutine of this
// Locker, in one transaction. The new one is at the end of the queue: nobody
// of another process is overtaken, and its token is greater than those that
// have been given to waiters before.
func (l *Locker) handOver(ctx context.Context, p *place, next *attempt) error {
	heir := newPlace(next.parent, p.anchor)
	ops := append([]any{&zk.DeleteRequest{Path: p.path, Version: -1}}, heir.ops(next.data, l.acl)...)
	failed, err := l.send(ctx, heir, ops)
	switch {
	case failed == 0 && errors.Is(err, zk.ErrNoNode):
		return errGone
	case failed >= 0:
		return l.remove(ctx, p) // the heir asks for itself
	case err != nil:
		l.sweep(heir)
		return err
	}
	next.place = heir
	return nil
}
