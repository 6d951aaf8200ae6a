package zookeeper

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/async"
	"github.com/lockstile/locker/internal/zkclient"
)

// attempt is one attempt at a name, with its place in the queue, and the hold that
// comes of it.
type attempt struct {
	req     *driver.Request
	queue   string   // the path below which its place is
	session *session // that it has joined, or nil

	path   string // of its node; all but the number, which the server appends, until that is found
	madeIn int64  // the zk client's session in which that was made
	found  bool
	gone   bool // it is certain that there is no such node, nor will be

	made   *async.Call[[]zk.MultiResponse] // the request that makes it, until its answer is read
	zxid   int64                           // of that request; 0 if its answer was not heard, or the place is none
	alone  bool                            // nobody else had a place then
	usedUp int64                           // the zxid that made a queue which had no number left for it, or 0
	since  driver.Instant                  // before the request that found it first in the queue
}

var (
	// errGone means that a place has been removed: somebody deleted the node.
	errGone = errors.New("its node is gone")
	// errUsedUp means that a place has got no number of its own: see numbered.
	errUsedUp = errors.New("its queue has no numbers left and starts again once it is empty")
	// errEnded means that the session of a request has ended.
	errEnded = errors.New("its session has ended")
)

// again reports whether another place, or another session, may do.
func again(err error) bool {
	return errors.Is(err, errGone) || errors.Is(err, errUsedUp) || errors.Is(err, errEnded)
}

// enter takes a place at the end of the queue. If there is none before somebody has gone,
// it returns who that is.
func (s *store) enter(ctx context.Context, a *attempt) (ahead string, err error) {
	if err := s.Withdraw(ctx, a); err != nil {
		return "", err
	}
	if ahead, err := s.startAgain(ctx, a); ahead != "" || err != nil {
		return ahead, err
	}
	err = s.zk.WithParents(ctx, a.queue+"/", func() error { return s.take(ctx, a) })
	if errors.Is(err, errEnded) {
		a.session.Lose(locker.ReasonSessionEnded, nil)
	}
	return "", err
}

// take asks for a place. The queue's node is written to because its Stat is the answer
// to everything: the zxid of this transaction, which is the token, and the number
// of its children.
func (s *store) take(ctx context.Context, a *attempt) error {
	a.path, a.madeIn = a.queue+"/_c_"+newGUID()+markOf(a.req), a.session.id
	a.found, a.gone, a.zxid = false, false, 0
	ops := []any{
		&zk.CheckVersionRequest{Path: a.session.path, Version: -1},
		&zk.CreateRequest{Path: a.path, Data: nodeData(a.req.Holder, a.session.timeout), Acl: s.opts.ACL, Flags: zk.FlagEphemeralSequential},
		&zk.SetDataRequest{Path: a.queue, Version: -1},
	}
	a.since = driver.Now()
	a.made = zkclient.Async(ctx, s.zk, func() ([]zk.MultiResponse, error) { return s.zk.Conn.Multi(ops...) })
	return a.settle(ctx)
}

// settle waits for the answer to take. When ctx ends first, another settle waits on.
func (a *attempt) settle(ctx context.Context) error {
	if a.made == nil {
		return nil
	}
	select {
	case <-a.made.Ended():
		results, err := a.made.Wait(ctx)
		a.made = nil
		failed, err := zkclient.Failed(results, err)
		if err == nil {
			return a.note(results)
		}
		a.gone = failed >= 0 || zkclient.Refused(err) || errors.Is(err, zk.ErrNoServer) // the latter was never sent
		if failed == 0 && errors.Is(err, zk.ErrNoNode) {
			return errEnded
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// note takes note of the place that a has got.
func (a *attempt) note(results []zk.MultiResponse) error {
	if len(results) != 3 || !strings.HasPrefix(results[1].String, a.path) || results[2].Stat == nil {
		return errors.New("the server gave an answer of an unknown form")
	}
	a.path, a.found = results[1].String, true
	queue := results[2].Stat
	a.zxid, a.alone = queue.Mzxid, queue.NumChildren == 1
	if !numbered(a.node()) {
		a.zxid, a.usedUp = 0, queue.Czxid
		return errUsedUp
	}
	return nil
}

// node is the last element of the place's path.
func (a *attempt) node() string { return a.path[len(a.queue)+1:] }

// newGUID returns what tells our nodes from all others, in the form that the
// recipes use.
func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// startAgain removes a queue that has had no number left for a, for the next one
// begins at zero. The server refuses while there is a place in it, so nobody is
// overtaken: then it returns who is first. Meanwhile a takes no place, for that could go on
// for ever.
func (s *store) startAgain(ctx context.Context, a *attempt) (ahead string, err error) {
	if a.usedUp == 0 {
		return "", nil
	}
	first := ""
	queue, err := zkclient.Call(ctx, s.zk, func() (int64, error) {
		children, stat, err := s.zk.Children(a.queue)
		if err != nil {
			return 0, err
		}
		_, first, _ = inQueue(children, "")
		return stat.Czxid, nil
	})
	if err == nil && queue == a.usedUp { // else somebody else has removed it
		err = s.zk.Remove(ctx, a.queue)
	}
	switch {
	case errors.Is(err, zk.ErrNotEmpty) && first != "":
		return first, nil
	case errors.Is(err, zk.ErrNotEmpty):
		return "", fmt.Errorf("%w, and something else is below %q: remove it", errUsedUp, a.queue)
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return "", err
	}
	a.usedUp = 0
	return "", nil
}

// Withdraw removes a's node, or what may be there of it. Late requests of the same
// session need no other care, for the servers drop what comes over a connection
// that was replaced; those that come in the next session do not find the session's node.
func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	// The look for what a request has left could overtake one that is not sent yet.
	if err := a.settle(ctx); a.made != nil {
		return err
	}
	if !s.left(a) {
		return nil
	}
	err := s.find(ctx, a)
	if err == nil {
		err = s.zk.Remove(ctx, a.path)
	}
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, errGone) {
		err = nil
	}
	a.gone = err == nil
	return err
}

// find looks for the node that a request whose answer was lost may have made.
func (s *store) find(ctx context.Context, a *attempt) error {
	if a.found {
		return nil
	}
	children, err := s.latest(ctx, a.queue)
	if err != nil {
		return err
	}
	for _, node := range children {
		if path := a.queue + "/" + node; strings.HasPrefix(path, a.path) {
			a.path, a.found = path, true
			return nil
		}
	}
	return errGone
}
