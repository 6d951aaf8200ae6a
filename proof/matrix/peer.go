package matrix

import (
	"context"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

// Holding is a lock that a worker process holds. A [locker.Lock] is one; an adapter
// makes one of another library's lock. Its methods mean what those of [locker.Lock] do,
// with two differences: Token is zero if that lock has none, and Unlock asks the store
// also after a loss if that library does.
type Holding interface {
	Name() string
	Token() fencing.Token
	Err() error
	Lost() <-chan struct{}
	Deadline() time.Time
	Renew(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// Peer is a lock that need not be a [locker.Locker]. Of the request it honours Name, TTL
// and Renew.
type Peer interface {
	Lock(ctx context.Context, req *driver.Request) (Holding, error)
	TryLock(ctx context.Context, req *driver.Request) (Holding, error)
}

// PeerOpener makes the Peer that a worker process uses.
type PeerOpener func(ctx context.Context, url string) (Peer, error)

// AsPeer makes a Peer of a Locker.
func AsPeer(l locker.Locker) Peer {
	if w, ok := l.(Writer); ok {
		return writingPeer{lockerPeer{l}, w}
	}
	return lockerPeer{l}
}

// writingPeer is a Locker that is a Writer, too.
type writingPeer struct {
	lockerPeer
	Writer
}

type lockerPeer struct{ locker locker.Locker }

func (p lockerPeer) Lock(ctx context.Context, req *driver.Request) (Holding, error) {
	return holding(p.locker.Lock(ctx, req.Name, as(req)...))
}

func (p lockerPeer) TryLock(ctx context.Context, req *driver.Request) (Holding, error) {
	return holding(p.locker.TryLock(ctx, req.Name, as(req)...))
}

// resumer is a Peer that knows handles. Every Locker is one here: whether its locks can leave their process is in its Guarantees.
type resumer interface {
	Resume(ctx context.Context, h locker.Handle, req *driver.Request) (Holding, error)
	RenewHandle(ctx context.Context, h locker.Handle) error
}

func (p lockerPeer) Resume(ctx context.Context, h locker.Handle, req *driver.Request) (Holding, error) {
	return holding(locker.Resume(ctx, p.locker, h, as(req)...))
}

func (p lockerPeer) RenewHandle(ctx context.Context, h locker.Handle) error {
	return locker.RenewHandle(ctx, p.locker, h)
}

// holding keeps a nil *Lock from becoming a Holding that is not nil.
func holding(l *locker.Lock, err error) (Holding, error) {
	if err != nil {
		return nil, lockerError{err}
	}
	return l, nil
}

// lockerError is an attempt's error by the contract of [locker.Locker]: unless it is an
// ErrOutcomeUnknown, nothing is held. The errors of other locks promise nothing.
type lockerError struct{ error }

func (e lockerError) Unwrap() error { return e.error }

func as(req *driver.Request) []locker.Option {
	opts := []locker.Option{locker.WithTTL(req.TTL)}
	if !req.Renew {
		opts = append(opts, locker.WithoutRenewal())
	}
	switch req.Kind {
	case locker.KindShared:
		opts = append(opts, locker.WithShared())
	case locker.KindSlots:
		opts = append(opts, locker.WithSlots(req.Slots))
	}
	return opts
}

// kinds is what a lock has that may be of another kind than an exclusive one.
type kinds interface {
	SharedToken() fencing.SharedToken
	Slot() int
}

var _ kinds = (*locker.Lock)(nil)

// numbered is a lock as histories know it.
type numbered struct {
	Holding
	// id is that of the order that got it.
	id int
	// number is its token, or its number if it is shared. A lock that has neither has the
	// number of the grant.
	number fencing.Token
	shared bool
	// resource is what it protects: what belongs to its name, or to its slot.
	resource string
}

func (n numbered) Token() fencing.Token { return n.number }
