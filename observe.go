package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Event is something that has happened to a lock, or to a call of Lock or TryLock. It is for
// logs, metrics and traces; whoever holds the lock goes by the [Lock] itself.
type Event struct {
	What What
	Name string
	Kind Kind

	// Call tells the events of one call, and of the lock that came of it, from those of
	// other calls in this process.
	Call uint64

	// Time is when it happened, by this machine's wall clock.
	Time time.Time

	// Token is, from the grant to the end, the Token or the SharedToken of the lock; else it
	// is 0. With [WithCounter] it is not the counter's.
	Token uint64
	Slot  int // as [Lock.Slot], and -1 while there is no lock

	// Took is, of Granted, Passed and Failed, how long the call waited; of Released and Lost,
	// how long ago the call got the lock, also if the machine was suspended meanwhile; of
	// NotRenewed and RenewedLate, how long ago the grant, or the last renewal that had worked,
	// was sent; of CleanedUp, how long that took.
	Took time.Duration

	// Left is, of NotRenewed, how much validity is left; of RenewedLate, how much there would
	// be without that renewal. It is the greatest Duration where validity has no end.
	Left time.Duration

	// Holder is, of Waiting, the text of one who has the lock: see WithHolder. It is ""
	// where that is not known, and of a call that stands behind another one that waits.
	Holder string

	// Reason is, of Lost, why. Its Code is a label for metrics.
	Reason Reason

	// Err is, of Failed, what the call returns; of Lost, a *[LostError]; of Released, what
	// Unlock returns; of NotRenewed, why; of CleanedUp, an [ErrOutcomeUnknown] if the store
	// did not confirm it.
	Err error

	// Missed is how many events just before this one the observer has missed.
	Missed uint64
}

// What is the kind of an [Event].
//
// A call ends with one Granted or Passed, or with one Failed; one whose name or options are
// refused may have no events. A lock ends with one Released or Lost, also where [WithCounter]
// or [LockAll] gives it back and the caller gets none. Waiting comes before the former,
// NotRenewed and RenewedLate between the two. A CleanedUp comes when the store has answered,
// and may be the last.
type What uint8

const (
	Waiting     What = iota + 1 // the lock is taken and the call waits for it; told once
	Granted                     // the store has granted the lock
	Passed                      // another goroutine of this process has passed the lock on, or shares it
	Failed                      // the call has not got the lock
	NotRenewed                  // a renewal has failed; the lock is held until its validity ends
	RenewedLate                 // a renewal worked only when the next one was due
	Lost                        // the lock was lost
	Released                    // the lock was unlocked
	CleanedUp                   // what a call, or a lock that is over, had left in the store was removed
)

var whats = [...]string{
	"unknown", "waiting", "granted", "passed", "failed", "not_renewed", "renewed_late", "lost", "released", "cleaned_up",
}

// String returns what happened in one word, for labels and programs. It never changes.
func (w What) String() string {
	if int(w) >= len(whats) {
		w = 0
	}
	return whats[w]
}

// Observer is called with events, one after another, in the order in which they happened. It
// runs in a goroutine of its own, which no lock waits for. So an Observer that is slow, or
// hangs, is late, and misses events when [MaxEvents] wait for it. If it panics, or ends its
// goroutine, it has missed that event. The Close of a backend waits for it, for two seconds
// at most.
type Observer func(Event)

// MaxEvents is how many events wait for an [Observer].
const MaxEvents = 4096

// WithObserver has o called with the events of one call, and of the lock that comes of it. It
// may be given several times. While the store has the lock for somebody else, one more
// request asks whom a call waits for, if the backend is an [Inspector]. Without this option
// nothing is asked, measured or allocated.
func WithObserver(o Observer) Option {
	l := &listener{observer: o}
	return func(r *Request) error {
		if o == nil {
			return errors.New("WithObserver was given no observer")
		}
		r.listeners = append(r.listeners, l)
		return nil
	}
}

// Observe returns a Locker that locks with l and has o called with the events of all calls,
// as [WithObserver] does for one. What l is besides ([Inspector], [Breaker], [Lister]) it is
// as well, or else these calls return [errors.ErrUnsupported].
func Observe(l Locker, o Observer) Locker {
	return &observed{optional{l}, WithObserver(o)}
}

type observed struct {
	optional
	option Option
}

func (o *observed) Lock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return o.Locker.Lock(ctx, name, append(opts[:len(opts):len(opts)], o.option)...)
}

func (o *observed) TryLock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return o.Locker.TryLock(ctx, name, append(opts[:len(opts):len(opts)], o.option)...)
}

// optional keeps what a Locker that is wrapped can do besides.
type optional struct{ Locker }

func (o optional) Inspect(ctx context.Context, name string) (Info, error) {
	if i, ok := o.Locker.(Inspector); ok {
		return i.Inspect(ctx, name)
	}
	return Info{}, o.unsupported("Inspector")
}

func (o optional) Break(ctx context.Context, name string, tokens ...uint64) (bool, error) {
	if b, ok := o.Locker.(Breaker); ok {
		return b.Break(ctx, name, tokens...)
	}
	return false, o.unsupported("Breaker")
}

func (o optional) List(ctx context.Context, prefix string) ([]Info, error) {
	if i, ok := o.Locker.(Lister); ok {
		return i.List(ctx, prefix)
	}
	return nil, o.unsupported("Lister")
}

func (o optional) unsupported(what string) error {
	return fmt.Errorf("locker: %w: %s is no %s", errors.ErrUnsupported, kind(o.Locker), what)
}

// Observed reports whether anybody wants to hear of the request's events. Only package driver
// needs it.
func (r *Request) Observed() bool { return len(r.listeners) > 0 }

// Tell has the observers of the request hear of e, soon. It sets e's Name, Kind, Call and
// Time, and calls nobody. For each observer that will hear of e it calls begin, and what that
// returns when the observer has. Only package driver needs it.
func (r *Request) Tell(begin func() (done func()), e Event) {
	e.Name, e.Kind, e.Call, e.Time = r.Name, r.Kind, r.call, time.Now()
	for _, l := range r.listeners {
		l.tell(begin, e)
	}
}

// observedCalls numbers the calls that are observed.
var observedCalls atomic.Uint64

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

func (l *listener) tell(begin func() (done func()), e Event) {
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
