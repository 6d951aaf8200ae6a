package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstile/locker"
)

// renewalsPerTTL is how often a lease is renewed in the course of one TTL. With three,
// one renewal may fail and the next still has a third of the TTL left.
const renewalsPerTTL = 3

// tick ends leases that are over and renews those that are due. It runs in a goroutine
// of the timer's: a renewal that hangs does not keep the next tick from ending leases.
func (l *Locker[H]) tick() {
	l.mu.Lock()
	now := l.now()
	l.schedule.fires = 0
	batch := []*renewed[H](nil)
	for a := l.schedule.first(); a != nil && a.due <= now; a = l.schedule.first() {
		if a.left(now) > 0 {
			batch = l.schedule.batch(now)
			break
		}
		l.expire(a, now)
	}
	l.arm()
	l.mu.Unlock()
	if len(batch) > 0 {
		l.renewDue(batch)
	}
}

// arm makes the timer fire in time for the first lease. The Locker's mutex is held.
func (l *Locker[H]) arm() { l.schedule.arm(l.now(), l.tick) }

// renewDue renews the leases of a batch.
func (l *Locker[H]) renewDue(batch []*renewed[H]) {
	shortest := slices.MinFunc(batch, func(a, b *renewed[H]) int { return cmp.Compare(a.ttl, b.ttl) })
	ctx, cancel := context.WithTimeout(context.Background(), shortest.interval())
	defer cancel()
	l.renew(ctx, batch, func(a *renewed[H]) { a.renewing = false })
}

// renewNow renews a turn's lease for its holder, who called Renew.
func (l *Locker[H]) renewNow(ctx context.Context, t *turn[H]) error {
	batch := make([]*renewed[H], 0, 2) // with the session that it depends on
	end := ended(ctx)
	l.mu.Lock()
	err := l.checkHeld(t)
	if err == nil && end.err != nil {
		err = l.wrap("renew", t.req.Name, end.why())
	}
	if err == nil {
		t.lease.uses++
		batch = append(batch, &t.lease.renewed)
		if s := t.lease.session; s != nil {
			s.uses++
			batch = append(batch, &s.renewed)
		}
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	err = cmp.Or(l.renew(causeless(ctx), batch, func(*renewed[H]) {})...)
	if lost := t.Err(); lost != nil {
		return lost
	}
	if err != nil {
		return l.wrap("renew", t.req.Name, ended(ctx).unavailable(err))
	}
	return nil
}

// renew asks the store for another TTL for a batch of leases, whose uses have been
// counted, and calls ended for each under the Locker's mutex before it notes the answer.
func (l *Locker[H]) renew(ctx context.Context, batch []*renewed[H], ended func(*renewed[H])) []error {
	since := l.now()
	errs := l.askToRenew(ctx, batch)
	l.mu.Lock()
	for i, a := range batch {
		ended(a)
		l.settle(a, since, errs[i])
	}
	l.arm()
	l.mu.Unlock()
	for _, a := range batch {
		l.done(a)
	}
	return errs
}

// askToRenew asks for each session by itself, and meanwhile for all leases at once.
func (l *Locker[H]) askToRenew(ctx context.Context, batch []*renewed[H]) []error {
	errs := make([]error, len(batch))
	var sessions sync.WaitGroup
	var hs []H
	var at []int // where each is in batch
	for i, r := range batch {
		switch what := r.what.(type) {
		case *session[H]:
			sessions.Go(func() { errs[i] = Caught(func() error { return what.renew(ctx) }) })
		case *lease[H]:
			hs, at = append(hs, what.h), append(at, i)
		}
	}
	if len(hs) > 0 {
		for j, err := range l.renewInStore(ctx, hs) {
			errs[at[j]] = err
		}
	}
	sessions.Wait()
	return errs
}

// renewInStore asks for all of hs at once.
func (l *Locker[H]) renewInStore(ctx context.Context, hs []H) (answers []error) {
	if err := Caught(func() error { answers = l.store.Renew(ctx, hs); return nil }); err != nil {
		answers = slices.Repeat([]error{err}, len(hs))
	}
	if len(answers) != len(hs) {
		panic(fmt.Sprintf("%s: the renewal answered %d errors for %d locks", l.name, len(answers), len(hs)))
	}
	return answers
}

// settle notes the answer to a renewal. An answer after the end of validity comes too
// late, even if no timer has fired yet: a holder that may have heard that it has lost
// the lock must not hold it again. What such a renewal has left in the store is removed.
// The Locker's mutex is held.
func (l *Locker[H]) settle(a *renewed[H], since Instant, err error) {
	now := l.now()
	l.expire(a, now)
	lost, ok := errors.AsType[*locker.LostError](err)
	switch {
	case a.over:
		if err == nil && a.lost {
			a.there = true
			a.uses++
			l.cleanUp(a)
		}
	case ok:
		a.there = false
		l.lose(a, lost.Reason, lost.Cause)
	case err != nil:
		a.lastErr = err
		l.reportRenewal(a, locker.EventNotRenewed, now, err)
		again := now.Add(max(a.interval()/5, 10*time.Millisecond))
		if a.due != 0 { // a call of Lock.Renew, which may have had little time, puts off none of ours
			again = min(again, a.due)
		}
		l.schedule.plan(a, again)
	default:
		a.lastErr = nil
		if a.renews && now.Sub(a.since) >= 2*a.interval() {
			l.reportRenewal(a, locker.EventRenewedLate, now, nil)
		}
		a.extend(since)
		l.schedule.plan(a, since.Add(a.interval()))
		if s, ok := a.what.(*session[H]); ok {
			l.endUnused(s)
		}
	}
}
