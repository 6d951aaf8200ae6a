package matrix

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockstile/locker"
)

// detaches draws whether a holder of such a lock detaches it.
func (c *crew) detaches(o order, rng *rand.Rand) bool {
	return o.Kind == locker.KindExclusive && c.play.guarantees.Detaches && rng.IntN(6) == 0
}

// handOver has the holder detach its lock. Then one process resumes it, perhaps the same; or two try, and one of them at most may; or nobody does, and the
// lock ends with its TTL.
func (c *crew) handOver(l workerLock, o order, rng *rand.Rand) {
	p := c.play
	o = order{Name: o.Name, TTL: o.TTL, NoRenew: rng.IntN(4) == 0, Handle: l.detach().Handle}
	if o.Handle == "" {
		l.Unlock() // it may still be held
		return
	}
	p.Sleep(between(rng, time.Millisecond, shortly))
	if rng.IntN(3) == 0 {
		c.anyone(rng).renewHandle(o)
		p.Sleep(between(rng, time.Millisecond, shortly))
	}
	var takers []*worker
	for range rng.IntN(3) {
		takers = append(takers, c.anyone(rng))
	}
	if len(takers) == 0 && o.TTL > p.TTL { // others would wait for too long
		takers = append(takers, c.anyone(rng))
	}
	hold := between(rng, time.Millisecond, 30*time.Millisecond)
	resumed := make([]bool, len(takers))
	p.all(together(takers, func(i int, w *worker) { resumed[i] = w.goOn(o, hold) }))
	// A server that has forgotten who went on gives the lock to whoever asks next.
	if len(takers) == 2 && resumed[0] && resumed[1] && !c.forgetful() {
		p.History.NoteUntrue("%s and %s have both resumed one lock", takers[0].Name, takers[1].Name)
	}
}

// anyone draws a worker.
func (c *crew) anyone(rng *rand.Rand) *worker { return c.seats[rng.IntN(len(c.seats))].worker.Load() }

// resumeTries is how often a worker asks for the lock of a handle.
const resumeTries = 3

// goOn has the worker resume a lock, write, and unlock. It asks again while the lock may be there, each time with the handle that it was given last. It
// reports whether it had the lock.
func (w *worker) goOn(o order, hold time.Duration) bool {
	p := w.play
	for range resumeTries {
		l, err := w.resume(o)
		var no *refusal
		switch {
		case err == nil:
			l.Write(0)
			p.Sleep(hold)
			l.Unlock()
			return true
		case !errors.As(err, &no):
			p.must(err)
		case no.Unknown:
			p.History.UnknownOutcome()
			o.Handle = no.Handle
		case no.Lost:
			return false
		}
		p.Sleep(hold)
	}
	return false
}
