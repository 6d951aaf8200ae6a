package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

const (
	// confirmTime is how long a caller whose attempt failed waits to hear
	// that nothing of it is left. The clean-up goes on behind its back.
	confirmTime = 250 * time.Millisecond

	// tryTime bounds each try of a clean-up.
	tryTime = time.Second
)

// token is the revision at which the lock became ours.
func (a *attempt) token() fencing.Token { return fencing.Token(a.mod) }

// release gives the lock back, where it can to the next goroutine in line.
func (l *Locker) release(ctx context.Context, a *attempt) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.leave()
	heir := l.heir(a)
	released, err := a.give(ctx, heir)
	if heir != nil && refused(err) { // servers without space still delete
		heir = nil
		released, err = a.give(ctx, nil)
	}
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		a.session.gone(err)
		return &locker.LostError{Name: a.req.Name, Reason: locker.SessionEnded, Cause: err}
	case err != nil:
		if heir != nil {
			heir.doubt = true
		}
		l.sweepLater(a)
		return fmt.Errorf("etcd: unlock %q: %w", a.req.Name, unavailable(ctx, err))
	case !released:
		return &locker.LostError{Name: a.req.Name, Reason: locker.TakenOver}
	}
	return nil
}

// heir is the next goroutine in line, if the lock can be handed to it: it wants
// the same session, so its key is the same.
func (l *Locker) heir(a *attempt) *attempt {
	next, ok := a.turn.Next()
	if !ok || next.req.TTL != a.req.TTL || l.closing.Err() != nil || !a.session.join() {
		return nil
	}
	next.on(a.session)
	return next
}

// give deletes our key, or makes it the heir's, in one step with the check that
// it is still ours. The heir's token is drawn here. It would be greater than
// those of waiters that are in the queue already, so the heir gets the lock only
// if there are none: if all keys of the name, to the last, are as we left ours.
// An heir that has given up by the time this arrives has moved the mark.
func (a *attempt) give(ctx context.Context, heir *attempt) (bool, error) {
	ours := unchanged(a.key, a.mod)
	remove := clientv3.OpDelete(a.key)
	if heir == nil {
		resp, err := a.kv().Txn(ctx).If(ours).Then(remove).Commit()
		return err == nil && resp.Succeeded, err
	}
	heir.asked = locker.Now()
	resp, err := a.kv().Txn(ctx).If(
		unchanged(a.folder, a.mod).WithPrefix(), unchanged(a.session.mark, a.session.lastMark()),
	).Then(
		clientv3.OpPut(a.key, heir.value, clientv3.WithLease(a.session.id)),
	).Else(
		clientv3.OpTxn([]clientv3.Cmp{ours}, []clientv3.Op{remove}, nil),
	).Commit()
	if err != nil {
		return false, err
	}
	if resp.Succeeded {
		heir.place, heir.mod, heir.granted = a.place, resp.Header.Revision, true
		return true, nil
	}
	return resp.Responses[0].GetResponseTxn().Succeeded, nil
}

// leave passes the turn on and lets the session go, once. a.mu is held.
func (a *attempt) leave() {
	if a.left {
		return
	}
	a.left = true
	if a.session != nil {
		a.session.owner.forget(a)
		a.session.leave()
	}
	a.turn.Leave()
}

// lost is called when the holder has lost the lock. Its key may still be there,
// for others hang on the same session.
func (l *Locker) lost(a *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l.sweepLater(a)
	a.leave()
}

// abandon gives up an attempt that failed, and reports whether it is known that
// nothing is left of it in the store. It does not stop when the caller's context
// is over: that is when it is needed most.
func (l *Locker) abandon(a *attempt) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.leave()
	if a.session != nil && (a.place != 0 || a.doubt) {
		select {
		case ok := <-l.sweepLater(a):
			if !ok {
				return false
			}
		case <-time.After(confirmTime):
			return false
		}
	}
	return a.formerOver()
}

// formerOver reports whether nothing is left that hung on an earlier session. By
// the local clock it has ended, but its lease ends when the servers say so.
func (a *attempt) formerOver() bool {
	if a.former == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), confirmTime)
	defer cancel()
	return a.former.revoke(ctx) == nil
}

// sweepLater removes the attempt's key in the background. It tries until the
// servers confirm or the session ends, with which the key goes as well; after
// Close it tries once more.
func (l *Locker) sweepLater(a *attempt) <-chan bool {
	done := make(chan bool, 1)
	if !a.session.join() {
		var lost *locker.LostError
		done <- errors.As(a.session.hold.Err(), &lost) && lost.Reason == locker.SessionEnded
		return done
	}
	l.chores.Go(func() {
		defer a.session.leave()
		done <- l.sweep(a)
	})
	return done
}

func (l *Locker) sweep(a *attempt) bool {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, tryTime) {
		last := l.closing.Err() != nil || l.client.Ctx().Err() != nil
		ctx, cancel := context.WithTimeout(context.Background(), tryTime)
		err := a.erase(ctx)
		cancel()
		if err == nil || last {
			return err == nil
		}
		select {
		case <-time.After(wait):
		case <-l.closing.Done():
		case <-a.session.hold.Context().Done():
			return false
		}
	}
}
