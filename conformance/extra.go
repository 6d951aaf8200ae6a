package conformance

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/lockstile/locker"
)

var extraClauses = []Clause{
	{"inspect", "What Inspect shows must be true, and looking must change nothing.", inspect},
	{"list", "Whoever looks for what is held below a prefix must see all of it, in order, and nothing that is free.", list},
	{"break", "Break is for a holder that hangs: it must free the lock, end it for the holder, and keep tokens in order.", breaks},
	{"closed", "A program that shuts down needs its waiters to return, and no new locks.", closed},
}

func inspect(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	i := x.inspector(b)
	if info := x.inspect(i, name); info.Held || info.Name != name || info.Waiters != 0 {
		x.failf("a name that nobody has ever locked is shown as %+v", info)
	}
	x.free(a, name, "of a name that was only looked at")
	const holder = "the holder's text, ünïcode included"
	held := x.lock(a, name, x.long(), locker.WithHolder(holder))
	info := x.inspect(i, name)
	if !info.Held || info.Holder != holder || info.Token != held.Token() || info.Name != name {
		x.failf("a lock with token %d, held by %q, is shown as %+v", held.Token(), holder, info)
	}
	if info.TimeLeft < 0 || info.TimeLeft > x.longTTL() || held.Deadline().IsZero() != (info.TimeLeft == 0) {
		x.failf("a lock with a TTL of %v is shown with %v left", x.longTTL(), info.TimeLeft)
	}
	w := x.wait(x.patient(), b, name)
	x.queued(i, name, 1)
	x.unlock(held)
	lock := x.served(w, "after unlock")
	if info := x.inspect(i, name); !info.Held || info.Token != lock.Token() || info.Waiters != 0 {
		x.failf("the next lock, with token %d, is shown as %+v", lock.Token(), info)
	}
	x.unlock(lock)
	if info := x.inspect(i, name); info.Held || info.Waiters != 0 || info.TimeLeft != 0 {
		x.failf("a lock that was unlocked is shown as %+v", info)
	}
	if _, err := i.Inspect(x.patient(), ""); err == nil {
		x.failf("Inspect of no name succeeded")
	}
}

// list uses names with characters that mean something to stores that search by patterns or
// paths.
func list(x *trial) {
	a, b, prefix := x.locker(), x.locker(), x.name()+"/*_[a]%?\\{x}/"
	lister, ok := b.(locker.Lister)
	if !ok {
		x.skip("locker.Lister")
	}
	if _, err := lister.List(x.patient(), prefix); errors.Is(err, errors.ErrUnsupported) {
		x.skip("locker.Lister")
	}
	x.unlock(x.lock(a, prefix+"free"))
	x.lock(a, x.name()+"/*_[a]%?\\{x}/", x.long()) // below another prefix
	x.lock(a, strings.Replace(prefix, "_[a]", "Za", 1), x.long())
	var want []string
	held := make(map[string]*locker.Lock)
	for _, end := range []string{"", "a", "a/b", "a{b}c", "ü"} {
		want = append(want, prefix+end)
		held[prefix+end] = x.lock(a, prefix+end, x.long(), locker.WithHolder("of "+end))
	}
	x.unlock(held[prefix+"a"])
	want = slices.Delete(want, 1, 2)
	infos, err := lister.List(x.patient(), prefix)
	if err != nil {
		x.failf("List: %w", err)
	}
	var got []string
	for _, info := range infos {
		got = append(got, info.Name)
		if lock := held[info.Name]; lock != nil && (!info.Held || info.Token != lock.Token() || info.Holder != "of "+strings.TrimPrefix(info.Name, prefix)) {
			x.failf("a lock with token %d is listed as %+v", lock.Token(), info)
		}
	}
	if !slices.Equal(got, want) {
		x.failf("List shows %q, held are %q", got, want)
	}
}

func breaks(x *trial) {
	for range 3 {
		if x.breakOnce() {
			return
		}
	}
	x.failf("the next holder's lock ran out before it could be looked at, three times")
}

// breakOnce reports whether the next holder's lock lasted. If it did not, because the
// machine stalled, the clause has seen nothing.
func (x *trial) breakOnce() bool {
	a, b, name := x.locker(), x.locker(), x.name()
	breaker := x.breaker(b)
	if ok, err := breaker.Break(x.patient(), name); ok || err != nil {
		x.failf("Break of a free name returned %v, %v", ok, err)
	}
	held := x.lock(a, name, locker.WithTTL(5*x.h.TTL)) // renewed well before a test loses patience
	ended := held.Lost()
	w := x.wait(x.patient(), b, name)
	x.waits(w, b, name)
	x.breakNow(breaker, name, "a held lock")
	lock := x.served(w, "after Break")
	if lock.Token() <= held.Token() {
		x.failf("token %d was granted after token %d, which Break had ended", lock.Token(), held.Token())
	}
	x.event(ended, "the holder learns that its lock was broken")
	if err := held.Err(); !errors.Is(err, locker.ErrLost) {
		x.failf("a lock that was broken says %v", err)
	}
	other := x.locker()
	got, err := x.trySlowly(other, name)
	var lost *locker.LostError
	switch errors.As(lock.Err(), &lost); {
	case lost == nil && (got != nil || !errors.Is(err, locker.ErrTaken)):
		x.failf("TryLock of a name that was broken and locked again returned %s and error %v, want ErrTaken", had(got), err)
	case lost == nil:
		x.unlock(lock)
	case lost.Reason != locker.ReasonExpired && lost.Reason != locker.ReasonUnreachable:
		x.failf("the next holder's lock was lost as well: %w", lost)
	}
	return lost == nil
}

func closed(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	closer, ok := b.(io.Closer)
	if !ok {
		x.skip("Close (io.Closer)")
	}
	held := x.lock(a, name)
	waiters := []*waiter{x.wait(x.patient(), b, name), x.wait(x.patient(), b, name)}
	x.waits(waiters[0], b, name)
	if err := closer.Close(); err != nil {
		x.failf("Close: %w", err)
	}
	for _, w := range waiters {
		x.returned(w, "when the Locker is closed")
		if !errors.Is(w.err, locker.ErrClosed) {
			x.failf("a waiter of a Locker that was closed got %s and error %v, want ErrClosed", had(w.lock), w.err)
		}
	}
	if err := held.Err(); err != nil {
		x.failf("another client's lock was lost to a Close: %w", err)
	}
	x.unlock(held)
	if _, err := b.Lock(x.patient(), name); !errors.Is(err, locker.ErrClosed) {
		x.failf("Lock after Close returned %v, want ErrClosed", err)
	}
	if _, err := b.TryLock(x.patient(), name); !errors.Is(err, locker.ErrClosed) {
		x.failf("TryLock after Close returned %v, want ErrClosed", err)
	}
	x.free(a, name, "after a waiter's Locker was closed")
}
