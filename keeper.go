package locker

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// renewalsPerTTL is how often a lock is renewed in the course of one
	// TTL. With three, one renewal may fail and the next still has a third of
	// the TTL left.
	renewalsPerTTL = 3

	// glance bounds how late a loss is told after the machine was suspended.
	// Go's timers stand still meanwhile, so a Keeper with locks looks at the
	// clock at least this often. Lock.Err looks by itself and is never late.
	glance = time.Second
)

// Keeper watches over the locks of one Locker: it renews them, many in one call
// of the backend's function, and ends their validity by the local clock. It has
// no goroutine of its own, only a timer while there are locks.
type Keeper struct {
	renew func(ctx context.Context, locks []*kept) []error

	mu    sync.Mutex
	locks lockHeap // those with something to do, the next first
	timer *time.Timer
	fires Instant // when timer does, or never
}

// NewKeeper returns a Keeper that renews with renew: one error for each lease
// ([Hold.Lease]), in order. Nil means that the store has started another TTL
// after renew was called; a [LostError] that it no longer has the lock. After
// any other error renewal is tried again until validity ends. renew must return
// when ctx ends. It is called from several goroutines at once if it is slow.
func NewKeeper[L any](renew func(ctx context.Context, leases []L) []error) *Keeper {
	return &Keeper{renew: func(ctx context.Context, locks []*kept) []error {
		leases := make([]L, len(locks))
		for i, l := range locks {
			leases[i] = l.hold.Lease.(L)
		}
		errs := renew(ctx, leases)
		if len(errs) != len(leases) {
			panic(fmt.Sprintf("locker: the backend's renewal answered %d errors for %d locks", len(errs), len(leases)))
		}
		return errs
	}}
}

// keep takes a new lock under watch.
func (k *Keeper) keep(l *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.extend(l.hold.Since)
	k.plan(l, l.since.Add(l.interval()))
	k.arm()
}

// interval is the time between two renewals.
func (l *kept) interval() time.Duration { return l.hold.Request.TTL / renewalsPerTTL }

// plan sets when to look at l again: at the end of its validity, or at renewAt
// if that comes first and there is anything to renew.
func (k *Keeper) plan(l *kept, renewAt Instant) {
	l.next = l.deadline
	pointless := l.maxEnd != 0 && l.maxEnd <= l.hold.Request.Deadline(l.since) && !l.hold.Lasting
	if l.hold.Request.Renew && !l.renewing && !pointless && (l.next == 0 || renewAt < l.next) {
		l.next = renewAt
	}
	switch {
	case l.next == 0 && l.index >= 0:
		heap.Remove(&k.locks, l.index)
	case l.next == 0:
	case l.index >= 0:
		heap.Fix(&k.locks, l.index)
	default:
		heap.Push(&k.locks, l)
	}
}

// arm makes the timer fire in time for the first lock. A timer that fires
// earlier is left alone, so that short-lived locks do not touch it at all. One
// that should have fired by now is not: the machine was suspended, and it stood
// still meanwhile.
func (k *Keeper) arm() {
	if len(k.locks) == 0 {
		return
	}
	now := Now()
	at := min(k.locks[0].next, now.Add(glance))
	if now < k.fires && k.fires <= at {
		return
	}
	k.fires = at
	if k.timer == nil {
		k.timer = time.AfterFunc(at.Sub(now), k.tick)
		return
	}
	k.timer.Reset(at.Sub(now))
}

// tick ends what is over and renews what is due. It runs in a goroutine of the
// timer's: a renewal that hangs does not keep the next tick from ending locks.
func (k *Keeper) tick() {
	k.mu.Lock()
	now := Now()
	k.fires = 0
	due := false
	for !due && len(k.locks) > 0 && k.locks[0].next <= now {
		if l := k.locks[0]; l.over(now) {
			k.expire(l)
		} else {
			due = true
		}
	}
	var batch []*kept
	if due {
		batch = k.batch(now)
	}
	k.arm()
	k.mu.Unlock()
	if len(batch) > 0 {
		k.renewBatch(batch)
	}
}

// batch takes the first lock and every one like it whose last renewal is at least
// half an interval old. Renewing early costs nothing here, and after one round
// locks that were acquired at different times share a batch for good.
//
// A batch has the time that the shortest of its leases allows. So a longer one
// that was taken along again and again would be lost to a store that is slow for
// the short one only.
func (k *Keeper) batch(now Instant) []*kept {
	var batch []*kept
	first := k.locks[0].interval()
	for _, l := range k.locks {
		waiting := l.next != l.deadline // for a renewal, and none is under way
		alike := l.interval() <= 2*first && first <= 2*l.interval()
		if waiting && alike && (l.next <= now || now.Sub(l.since) >= l.interval()/2) && !l.over(now) {
			batch = append(batch, l)
		}
	}
	for _, l := range batch {
		l.renewing = true
		k.plan(l, 0)
	}
	return batch
}

func (k *Keeper) renewBatch(batch []*kept) {
	shortest := batch[0].interval()
	for _, l := range batch {
		shortest = min(shortest, l.interval())
	}
	ctx, cancel := context.WithTimeout(context.Background(), shortest)
	defer cancel()
	since := Now()
	errs := k.renew(ctx, batch)
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, l := range batch {
		l.renewing = false
		k.settle(l, since, errs[i])
	}
	k.arm()
}

func (k *Keeper) renewNow(ctx context.Context, l *kept) error {
	if err := k.check(l); err != nil {
		return err
	}
	since := Now()
	err := k.renew(ctx, []*kept{l})[0]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settle(l, since, err)
	k.arm()
	if l.err != nil {
		return l.err
	}
	return err
}

// settle takes note of how a renewal ended. An answer that comes after the end
// of validity comes too late, also where no timer has fired yet: the holder may
// have been told, and whoever was told that it has lost must not hold again.
// What such a renewal left in the store is removed.
func (k *Keeper) settle(l *kept, since Instant, err error) {
	var lost *LostError
	switch now := Now(); {
	case l.err != nil || l.over(now):
		if l.err == nil {
			k.expire(l)
		}
		if err == nil && isLoss(l.err) {
			go func() { _ = l.release(context.Background()) }() // bounded; the lease ends it otherwise
		}
	case errors.As(err, &lost):
		k.remove(l)
		l.end(lost.Reason, lost.Cause)
	case err != nil:
		l.lastErr = err
		k.plan(l, now.Add(max(l.interval()/5, 10*time.Millisecond)))
	default:
		l.lastErr = nil
		l.extend(since)
		k.plan(l, since.Add(l.interval()))
	}
}

// check returns the lock's error, after a look at the clock.
func (k *Keeper) check(l *kept) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.err == nil && l.over(Now()) {
		k.expire(l)
	}
	return l.err
}

func (k *Keeper) lose(l *kept, reason Reason, cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.err == nil {
		k.remove(l)
		l.end(reason, cause)
	}
}

// unlock ends belief before the release is sent: once it is under way somebody
// else may hold the lock.
func (k *Keeper) unlock(l *kept) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.err == nil && l.over(Now()) {
		k.expire(l)
	}
	if l.err != nil {
		return l.err
	}
	k.remove(l)
	l.end(Unlocked, nil)
	return nil
}

// expire ends a lock whose deadline has come. A lock that would not end in the
// store by itself, or not yet, is given back there.
func (k *Keeper) expire(l *kept) {
	reason := l.reason()
	k.remove(l)
	l.end(reason, l.lastErr)
	if reason == MaxHold || l.hold.Lasting {
		go func() { _ = l.release(context.Background()) }() // bounded; the lease or the process ends it otherwise
	}
}

func (k *Keeper) remove(l *kept) {
	if l.index >= 0 {
		heap.Remove(&k.locks, l.index)
	}
}

// lockHeap is a heap.Interface, ordered by Lock.next.
type lockHeap []*kept

func (h lockHeap) Len() int           { return len(h) }
func (h lockHeap) Less(i, j int) bool { return h[i].next < h[j].next }

func (h lockHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *lockHeap) Push(x any) {
	l := x.(*kept)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *lockHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.index = -1
	return l
}
