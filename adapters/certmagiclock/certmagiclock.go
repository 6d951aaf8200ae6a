// Package certmagiclock has github.com/caddyserver/certmagic take locks of any backend, so that of
// many replicas that share a storage one obtains a certificate, and the others find it there.
//
//	storage, err := certmagiclock.Wrap(&certmagic.FileStorage{Path: "/mnt/certificates"}, locks)
//	…
//	certmagic.Default.Storage = storage
//
// The locks take the place of the storage's own. It is for storages whose locks are weak or
// missing: a storage of objects such as S3 has none, and certmagic's FileStorage says of its
// own that "mutual exclusion is not guaranteed to be perfectly enforced in the presence of
// stale locks".
//
// # What is promised
//
// One goroutine at a time has a name, of all processes that use the same store, as long as what
// the backend assumes is true ([locker.Guarantees]). Whoever waits for it is notified when it
// is free, and does not poll. Of two goroutines of one process the second one waits for the
// Unlock of the first. A lock is renewed until Unlock, however often certmagic tries again. When
// its process is killed, it is free after the TTL ([locker.WithTTL], 30 seconds by default).
//
// Everything else of the storage is as it was. Of the interfaces that certmagic looks for
// besides [certmagic.Storage], this one has both, TryLocker and LockLeaseRenewer.
//
// # A lock that is lost
//
// A lock is lost when the store cannot be reached for as long as the TTL, or when somebody
// breaks it. certmagic is not told in the middle of an attempt to obtain a certificate, for its
// interface cannot do that, nor has Store a token. So two processes may then obtain a
// certificate for the same domain: that costs one more of what the authority allows. If they
// also store it at the same moment, the key of one may stand beside the certificate of the
// other. As certmagic says, "code relying upon Locker must be tolerant of some
// mis-synchronizations".
//
// Before each attempt certmagic has the lock renewed (RenewLockLease). If it is lost by then, it is
// taken once more: certmagic looks into the storage right after that, whether the
// certificate is there already. If another process has the lock, or the store does not
// answer, that is an error: there is no attempt, and certmagic tries again a minute or more
// later. An error for good would keep it from looking for 30 days.
//
// Unlock returns an error that is a [locker.ErrLost] if the lock was lost. certmagic logs it.
//
// # Names
//
// Locks have certmagic's own names, such as issue_cert_example.com. To keep them apart from others,
// give the Locker a prefix. A name that [locker.CheckName] refuses is an error; domains,
// addresses of mail and what certmagic puts before them are shorter than its limit.
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/lockstile/locker"
)

// Storage is a storage with other locks.
type Storage struct {
	certmagic.Storage
	locks *names
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// Wrap returns the storage with locks of l. The options are those of each lock. WithShared,
// WithSlots and WithGuard are refused.
func Wrap(s certmagic.Storage, l locker.Locker, opts ...locker.Option) (*Storage, error) {
	locks, err := newNames(l, opts)
	if err != nil {
		return nil, err
	}
	return &Storage{s, locks}, nil
}

// Lock implements [certmagic.Locker].
func (s *Storage) Lock(ctx context.Context, name string) error { return s.locks.Lock(ctx, name) }

// TryLock implements [certmagic.TryLocker]. That somebody else has the lock is no error.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	err := s.locks.TryLock(ctx, name)
	if ctx.Err() == nil && errors.Is(err, locker.ErrTaken) && // the cause of ctx may be another lock's ErrTaken
		!errors.Is(err, locker.ErrOutcomeUnknown) {
		return false, nil
	}
	return err == nil, err
}

// Unlock implements [certmagic.Locker]. An [locker.ErrLost] says that the lock was lost before.
// After any other error it ends with its lease at the latest.
func (s *Storage) Unlock(ctx context.Context, name string) error { return s.locks.Unlock(ctx, name) }

// RenewLockLease implements [certmagic.LockLeaseRenewer]. It renews the lock now, or takes it
// once more if it was lost and nobody has it. The duration does not matter: until Unlock the
// lock is renewed in the background.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	lock := s.locks.lockOf(name)
	if lock == nil {
		return notHeld(name)
	}
	err := lock.Renew(ctx)
	if err != nil && errors.Is(lock.Err(), locker.ErrLost) { // the cause of ctx may be another lock's ErrLost
		return s.locks.retake(ctx, name, lock)
	}
	return err
}

// String returns what the storage says of itself, for certmagic's log.
func (s *Storage) String() string {
	if storage, ok := s.Storage.(fmt.Stringer); ok {
		return storage.String()
	}
	return fmt.Sprintf("%T", s.Storage)
}
