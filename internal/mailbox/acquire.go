package mailbox

import (
	"context"
	"time"

	"github.com/lockstile/locker/driver"
)

// Question asks a store for a lock once, and returns after what time to ask again if no
// word comes. With queue, the waiter has a place in the queue from then on.
type Question func(ctx context.Context, queue bool) (driver.Grant, time.Duration, error)

// Acquire does what a [driver.Store]'s Acquire does, for an attempt with this value. No
// attempt queues before words can arrive. If nobody listens yet, the first request does
// not queue: most locks are free, and to listen costs a connection. What is left is a place in
// the queue, if it has asked for one; of its requests only ask knows.
func (m *Mailbox) Acquire(ctx context.Context, value string, wait driver.Wait, ask Question) (driver.Grant, driver.Left, error) {
	if wait == nil || m.Channel() == "" && !m.Silent() {
		grant, _, err := ask(ctx, false)
		if wait == nil || err != nil || grant.Count > 0 {
			return grant, driver.Nothing, err
		}
		ctx = wait()
	}
	box := NewBox()
	if err := m.Open(ctx, value, box.Put); err != nil {
		return driver.Grant{}, driver.Nothing, err
	}
	defer m.Drop(value)
	for {
		grant, look, err := ask(ctx, true)
		if err != nil || grant.Count > 0 {
			return grant, driver.Unsure, err
		}
		ctx = wait()
		if err := box.Sleep(ctx, look); err != nil {
			return driver.Grant{}, driver.Unsure, err
		}
	}
}
