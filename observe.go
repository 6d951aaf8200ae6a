package locker

import (
	"errors"
	"sync"
	"time"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

// Event is something that has happened to a lock, or to a call of Lock or TryLock. It is for
// logs, metrics and traces; a holder asks its [Lock].
type Event struct {
	Type EventType
	Name string
	Kind Kind

	// Call is the same in all events of one call and of the lock that it got, and differs from that of every
	// other call in this process.
	Call uint64

	// Time is when it happened, by this machine's wall clock.
	Time time.Time

	// Token and SharedToken are the lock's in the events from its grant to its end, and 0 in others. With
	// [WithCounter] they are not the counter's.
	Token       fencing.Token
	SharedToken fencing.SharedToken
	Slot        int // as [Lock.Slot], and -1 while there is no lock

	// Took is how long the call waited (EventGranted, EventPassed, EventFailed); how long ago
	// the call got the lock, time in which the machine was suspended included (EventReleased, EventDetached,
	// EventLost); how long ago the grant, or the last renewal that had worked, was sent
	// (EventNotRenewed, EventRenewedLate); or how long the clean-up took (EventCleanedUp).
	Took time.Duration

	// Left is how much validity is left (EventNotRenewed), or how much there would be without
	// this renewal (EventRenewedLate). It is the greatest Duration where validity has no end.
	Left time.Duration

	// Holder is the text of one who has the lock (EventWaiting): see WithHolder. It is "" where
	// that is not known, and for a call that stands behind another one that waits.
	Holder string

	// Reason says why the lock was lost (EventLost). Its Code is a label for metrics.
	Reason Reason

	// Err is what the call returns (EventFailed), a *[LostError] (EventLost), what Unlock
	// returns (EventReleased), why the renewal failed (EventNotRenewed), or an
	// [ErrOutcomeUnknown] if the store did not confirm the removal (EventCleanedUp).
	Err error

	// Missed is how many events just before this one the observer has missed.
	Missed uint64
}

// EventType says what has happened.
//
// A call ends with one EventGranted or EventPassed, or with one EventFailed; one whose name or
// options are refused may have no events. A lock ends with one EventReleased, EventDetached or EventLost, also
// where [WithCounter] or [LockAll] gives it back and the caller gets none. EventWaiting comes
// before the former, EventNotRenewed and EventRenewedLate come between the two. An
// EventCleanedUp comes when the store has answered, and may be the last.
type EventType uint8

const (
	EventWaiting     EventType = iota + 1 // the lock is taken and the call waits for it; comes once
	EventGranted                          // the store has granted the lock
	EventPassed                           // another goroutine of this process has passed the lock on, or shares it
	EventFailed                           // the call has not got the lock
	EventNotRenewed                       // a renewal has failed; the lock is held until its validity ends
	EventRenewedLate                      // a renewal worked only when the next one was due
	EventLost                             // the lock was lost
	EventReleased                         // the lock was unlocked
	EventCleanedUp                        // what a call, or a lock that is over, had left in the store was removed
	EventDetached                         // the lock was detached: it is taken in the store, and this process does not hold it any more
)

var eventTypes = [...]string{
	"unknown", "waiting", "granted", "passed", "failed", "not_renewed", "renewed_late", "lost", "released", "cleaned_up",
	"detached",
}

// String returns what happened in one word, for labels and programs. It never changes.
func (t EventType) String() string {
	if int(t) >= len(eventTypes) {
		t = 0
	}
	return eventTypes[t]
}

// Observer is called with events, one after another, in the order in which they happened. It
// runs in a goroutine of its own, which no lock waits for. So an Observer that is slow, or
// hangs, is late, and misses events when [MaxEvents] wait for it. If it panics, or ends its
// goroutine, it has missed that event. The Close of a backend waits for it, for two seconds
// at most.
type Observer func(Event)

// MaxEvents is how many events wait for an [Observer].
const MaxEvents = 4096

// WithObserver calls o with the events of one call and of the lock that it gets. It
// may be given several times. While the store has the lock for somebody else, one more
// request asks whom a call waits for, if the backend is an [Inspector]. Without this option
// nothing is asked, measured or allocated.
func WithObserver(o Observer) Option {
	l := &listener{observer: o}
	return Option{func(s *contract.Settings) error {
		if o == nil {
			return errors.New("WithObserver was given no observer")
		}
		s.Observers = append(s.Observers, l)
		return nil
	}}
}

// Observe returns a Locker that locks with l and has o called with the events of all calls: it is
// [With] and [WithObserver].
func Observe(l Locker, o Observer) Locker { return With(l, WithObserver(o)) }

// listener is an Observer and the events that wait for it.
type listener struct {
	observer Observer

	mu     sync.Mutex
	news   []news
	missed uint64 // since the last of news
	busy   bool   // deliver runs

	panicked uint64 // events just before the next one; deliver's
}

// news is an event that waits.
type news struct {
	Event
	done func() // to be called when it was told
}

// Tell implements [contract.Observer].
func (l *listener) Tell(begin func() (done func()), event any) {
	e := event.(Event)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.news) == MaxEvents {
		l.missed++
		return
	}
	e.Missed, l.missed = l.missed, 0
	l.news = append(l.news, news{e, begin()})
	if !l.busy {
		l.busy = true
		go l.deliver()
	}
}

// deliver calls the observer until no event waits. If the observer panics, or ends the
// goroutine, another one goes on.
func (l *listener) deliver() {
	for n, ok := l.next(); ok && l.call(n); n, ok = l.next() {
	}
}

func (l *listener) next() (n news, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.news) == 0 {
		l.busy, l.news = false, nil
		return n, false
	}
	n, l.news[0] = l.news[0], n
	l.news = l.news[1:]
	return n, true
}

func (l *listener) call(n news) (returned bool) {
	n.Missed, l.panicked = n.Missed+l.panicked, 0
	defer func() {
		if !returned {
			_ = recover()
			l.panicked = n.Missed + 1
			go l.deliver()
		}
		n.done()
	}()
	l.observer(n.Event)
	return true
}
