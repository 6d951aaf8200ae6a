package matrix

import (
	"errors"
	"fmt"
	"time"
)

// refusal is the error of an attempt that got no lock.
type refusal struct {
	report
	who string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s got no lock: %s", r.who, r.Err) }

// unconfirmed reports whether a refusal that took so long can come of a store that
// has waited for its replica in vain. Any other says nothing about replicas.
func (r *refusal) unconfirmed(took time.Duration) bool {
	return !r.Taken && (r.NoStore || r.Unknown) && took >= shortly
}

// checkNothingHeld checks an error that promises that the attempt holds nothing: w
// must get the lock, which nobody else wants. The promise is false only if the store
// calls the lock taken for half a lease. Any other error proves nothing, and neither
// does a machine that is slow.
func (p *play) checkNothingHeld(err error, w *worker) {
	p.checkNothingHeldBy(err, p.TTL, func() (workerLock, error) { return w.Try(patience) })
}

// checkNothingHeldBy is checkNothingHeld for an attempt at a lease of that length; somebody else
// tries. It reports whether neither of them can have left anything.
func (p *play) checkNothingHeldBy(err error, lease time.Duration, try func() (workerLock, error)) bool {
	var promise *refusal
	if !errors.As(err, &promise) || !promise.Nothing {
		return false
	}
	for end := now().Add(lease / 2); ; p.Sleep(lease / 20) {
		late := now() > end // before the question: its answer may be slow
		l, err := try()
		var no *refusal
		switch {
		case err == nil:
			return l.Unlock()
		case !errors.As(err, &no):
			p.must(err)
		case !no.Taken:
			return no.Nothing
		case late:
			p.History.NoteUntrue("%s was told that it holds nothing, and %s that the lock is taken: %s", promise.who, no.who, promise.Err)
			return false
		}
	}
}

// nobodyElse checks that w cannot have a lock that is held: if it can, the history
// shows the overlap. Only a store that calls the lock taken has refused it because it
// is held. After any other error w asks again, for less long than LockingLong holds.
func (p *play) nobodyElse(w *worker) {
	for end := time.Now().Add(p.long()); ; p.Sleep(p.TTL / 20) {
		l, err := w.Try(2 * p.TTL)
		var no *refusal
		switch {
		case err == nil:
			l.Write(99)
			return
		case !errors.As(err, &no):
			p.must(err)
		case no.Taken:
			return
		case time.Now().After(end):
			p.notPlayed("it is unknown whether somebody else could have had the lock: %w", no)
		}
	}
}

// tryUnconfirmed tries for a lock of which no replica hears. It reports whether the
// store granted it all the same.
func (w *worker) tryUnconfirmed() (workerLock, bool) {
	asked := now()
	l, err := w.Try(2 * time.Second)
	var no *refusal
	switch {
	case err == nil:
		return l, true
	case !errors.As(err, &no):
		w.play.must(err)
	case !no.unconfirmed(now().Sub(asked)):
		w.play.notPlayed("%w: that is not for want of a replica", no)
	default:
		w.play.History.Mark("%v", no)
	}
	return workerLock{}, false
}
