package peers

import (
	"context"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix"
)

// attached is a lock that lasts as long as a session, which renews itself. Its
// holder believes until the library says that the session may have ended. It has no
// deadline, for the library gives none.
type attached struct {
	name    string
	token   fencing.Token
	over    func() error // why the session may have ended, or nil
	release func(ctx context.Context) error

	mu   sync.Mutex
	err  error
	lost chan struct{} // closed by a loss
	done chan struct{} // closed when it is no longer held, for whatever reason
}

var _ matrix.Holding = (*attached)(nil)

func newAttached(name string, token fencing.Token, over func() error, release func(context.Context) error) *attached {
	return &attached{
		name: name, token: token, over: over, release: release,
		lost: make(chan struct{}), done: make(chan struct{}),
	}
}

func (a *attached) Name() string                { return a.name }
func (a *attached) Token() fencing.Token        { return a.token }
func (a *attached) Lost() <-chan struct{}       { return a.lost }
func (a *attached) Deadline() time.Time         { return time.Time{} }
func (a *attached) Renew(context.Context) error { return a.Err() }

// Err asks the library, as a careful user does before every write.
func (a *attached) Err() error {
	if cause := a.over(); cause != nil {
		a.lose(locker.ReasonSessionEnded, cause)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// lose ends belief because the lock is lost.
func (a *attached) lose(reason locker.Reason, cause error) {
	if a.end(&locker.LostError{Name: a.name, Reason: reason, Cause: cause}) {
		close(a.lost)
	}
}

// end ends belief, once, and reports whether it had not ended.
func (a *attached) end(why error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return false
	}
	a.err = why
	close(a.done)
	return true
}

// Unlock calls the library also when the lock is lost, as a deferred call does.
func (a *attached) Unlock(ctx context.Context) error {
	lost := a.Err()
	a.end(locker.ErrUnlocked)
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	if err := a.release(ctx); lost == nil {
		return err
	}
	return lost
}
