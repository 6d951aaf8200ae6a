package driver

import "github.com/lockstile/locker"

// Methods are those of a [Locker] that a backend's users call. A backend embeds them in a type of
// its own, and keeps the Locker, which can do more, to itself:
//
//	type Locker struct {
//		driver.Methods
//		store *store
//	}
type Methods interface {
	locker.Locker
	locker.Inspector
	locker.Breaker
	locker.Lister
	locker.Resumer

	// Close makes waiters, and all calls of Lock and TryLock from now on, return
	// [locker.ErrClosed]. Locks that are held stay held ([Locker.Close]).
	Close() error
}
