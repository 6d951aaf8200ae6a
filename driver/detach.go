package driver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

// resumeTime bounds how long what is asked by a handle waits for the store.
const resumeTime = 5 * time.Second

// Detacher is a Store whose exclusive locks can go on in another process: Guarantees.Detaches is true. They hang on no [Session].
type Detacher[H any] interface {
	// ID returns what the store knows h's lock by. Nobody can guess it.
	ID(h H) string

	// Resume has h take the place of an attempt with one of these ids, which come from outside, if that has the lock: in one atomic step, with
	// tokens drawn anew. Waiters stay where they are. Requests of the attempts with these ids that arrive later find themselves
	// refused, also if the lock was given back meanwhile. A [locker.LostError] says that none of them has the lock, and that h never will; an
	// [errors.ErrUnsupported] that the ids are none of the Store's. Beside any other error Resume says whether h may have the lock, as Acquire does: a refusal of a
	// second try says nothing of the first. Resume returns when ctx ends.
	Resume(ctx context.Context, h H, ids []string) (Grant, Left, error)

	// Adopt makes h the attempt with this id, which another process had. It comes right after Begin, and sends nothing; only Renew or Release is called for h then, which
	// has to do without what Acquire would have noted. So a request of that attempt may still be under way, and a Release that was sent twice does not know
	// whether its first try has freed the lock that is gone: that is an error, and no LostError. An [errors.ErrUnsupported] says that the id, which comes from outside, is none of the Store's.
	Adopt(h H, id string) error
}

// detacher returns the Store, or an error if its locks cannot be detached.
func (l *Locker[H]) detacher() (Detacher[H], error) {
	if s, ok := l.store.(Detacher[H]); ok && l.Guarantees().Detaches {
		return s, nil
	}
	return nil, fmt.Errorf("%w: its locks end with their process: use Redis, PostgreSQL's leases, or a backend of package register, "+
		"which on one machine is open.URL(\"file:DIR\")", errors.ErrUnsupported)
}

// Detach implements [contract.Held].
func (t *turn[H]) Detach(ctx context.Context) (d contract.Detached, err error) {
	a, l := t.lease, t.lease.locker
	s, err := l.detacher()
	if err == nil {
		err = l.stays(t)
	}
	if err != nil {
		return d, l.wrap("detach", t.req.Name, err)
	}
	if err := l.renewNow(ctx, t); err != nil {
		return d, fmt.Errorf("not detached: %w", err)
	}
	l.mu.Lock()
	if err = l.checkHeld(t); err == nil {
		l.leaveStore(t)
	}
	l.mu.Unlock()
	if err != nil {
		return d, err
	}
	l.done(&a.renewed)
	return contract.Detached{Backend: l.name, Name: t.req.Name, TTL: a.ttl, IDs: []string{s.ID(a.h)}}, nil
}

// stays returns an error if a lock could not go on in another process as it is.
func (l *Locker[H]) stays(t *turn[H]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case t.lease.req.Kind != locker.KindExclusive:
		return fmt.Errorf("%w: it is %v, and only exclusive locks can be detached", errors.ErrUnsupported, t.lease.req.Kind)
	case t.maxEnd != 0:
		return fmt.Errorf("%w: it has a maximum hold, and no other process shares the clock that this is counted on", errors.ErrUnsupported)
	case t.ofSet:
		return fmt.Errorf("%w: it is one of a Set, which is held as a whole", errors.ErrUnsupported)
	}
	return nil
}

// leaveStore ends a turn and its lease, and leaves the lock in the store. Belief ends before anybody else can have the handle. The Locker's mutex is held.
func (l *Locker[H]) leaveStore(t *turn[H]) {
	a := t.lease
	t.unlocked.Name, t.detached = t.req.Name, true
	t.end(&t.unlocked)
	l.reportEnd(t, nil)
	l.end(&a.renewed)
	a.detach()
	if !a.beside() {
		l.advance(a.line)
	}
}

// Resume implements [locker.Resumer].
func (l *Locker[H]) Resume(ctx context.Context, h locker.Handle, opts ...locker.Option) (*locker.Lock, error) {
	d, s, err := l.parse("resume", h, opts)
	if err != nil {
		return nil, err
	}
	c := &call[H]{req: newRequest(d.Name, s), handle: &d}
	if s.Guard != nil || s.Wait > 0 || c.req.Kind != locker.KindExclusive || c.req.MaxHold > 0 {
		err = fmt.Errorf("%w: WithGuard, WithWait, WithShared, WithSlots and WithMaxHold do not go with Resume", errors.ErrUnsupported)
		return nil, l.wrap("resume", d.Name, err)
	}
	t, err := l.turn(ctx, c)
	if err != nil {
		return nil, err
	}
	return locker.NewLock(contract.Key{}, t), nil
}

// parse returns what a handle says, and what a call that was given it asks for.
func (l *Locker[H]) parse(verb string, h locker.Handle, opts []locker.Option) (d contract.Detached, s contract.Settings, err error) {
	if d, err = contract.ParseHandle(string(h)); err != nil {
		return d, s, fmt.Errorf("%s: %s: %w", l.name, verb, err)
	}
	if s, err = locker.ParseOptions(contract.Key{}, nil, d.Name, append([]locker.Option{locker.WithTTL(d.TTL)}, opts...)); err != nil {
		return d, s, err
	}
	if _, err = l.detacher(); d.Backend != l.name {
		err = fmt.Errorf("%w: the handle is of a lock on %s, and this is %s", errors.ErrUnsupported, d.Backend, l.name)
	}
	if err != nil {
		err = l.wrap(verb, d.Name, err)
	}
	return d, s, err
}

// takeOver asks the store for the place of the attempts that c's handle names. Nothing is withdrawn after an error, for that would free the lock.
func (l *Locker[H]) takeOver(ctx context.Context, c *call[H]) (t *turn[H], err error) {
	defer func() {
		if t == nil {
			l.endOf(c.h)
		}
	}()
	s := l.store.(Detacher[H]) // Resume has looked
	within, cancel := context.WithTimeout(causeless(ctx), resumeTime)
	defer cancel()
	d := *c.handle
	var grant Grant
	var left Left
	err = Caught(func() (err error) { grant, left, err = s.Resume(within, c.h, d.IDs); return err })
	received := l.now()
	lost, isLost := errors.AsType[*locker.LostError](err)
	switch {
	case isLost:
		return nil, &locker.LostError{Name: d.Name, Reason: lost.Reason, Cause: lost.Cause}
	case err != nil && left == Nothing && errors.Is(err, errors.ErrUnsupported): // which some errors of the system are, too
		return nil, err
	case err != nil && left == Nothing:
		return nil, ended(ctx).unavailable(err)
	case err == nil:
		c.there = true
		if t, err = l.beginLease(c, grant, received); err == nil {
			return t, nil
		}
		d.IDs = nil
	default:
		err = ended(ctx).unavailable(err)
	}
	d.IDs = append(d.IDs, s.ID(c.h))
	return nil, &locker.ResumeError{Handle: locker.Handle(d.Handle()), Cause: err}
}

// RenewHandle implements [locker.Resumer].
func (l *Locker[H]) RenewHandle(ctx context.Context, h locker.Handle, opts ...locker.Option) error {
	return l.byHandle(ctx, "renew", h, opts, l.renewAll)
}

// UnlockHandle implements [locker.Resumer].
func (l *Locker[H]) UnlockHandle(ctx context.Context, h locker.Handle) error {
	return l.byHandle(context.WithoutCancel(ctx), "unlock", h, nil, l.releaseInOrder)
}

// byHandle has do ask the store about the attempts that a handle names, of which one at most has the lock. Nobody in this process believes in the lock, so it
// has neither a lease nor a place in a line.
func (l *Locker[H]) byHandle(ctx context.Context, verb string, h locker.Handle, opts []locker.Option, do func(context.Context, []H, time.Duration) []error) error {
	d, s, err := l.parse(verb, h, opts)
	if err != nil {
		return err
	}
	defer l.calls.begin()()
	least, _ := locker.ParseOptions(contract.Key{}, nil, d.Name, []locker.Option{locker.WithTTL(s.TTL)})
	var hs []H
	defer func() {
		for _, h := range hs {
			l.endOf(h)
		}
	}()
	switch {
	case !reflect.DeepEqual(s, least):
		err = fmt.Errorf("%w: only WithTTL goes with RenewHandle", errors.ErrUnsupported)
	case l.closing.Err() != nil:
		err = locker.ErrClosed
	case ctx.Err() != nil:
		err = ended(ctx).why()
	default:
		hs, err = l.adopt(d, &newRequest(d.Name, s).Request)
	}
	if err == nil {
		err = anyOf(do(causeless(ctx), hs, s.TTL), d.Name)
		if err != nil && !errors.Is(err, locker.ErrLost) {
			err = ended(ctx).unavailable(err)
		}
	}
	if err != nil {
		return l.wrap(verb, d.Name, err)
	}
	return nil
}

// adopt returns the attempts that a handle names, beside an error, too.
func (l *Locker[H]) adopt(d contract.Detached, req *Request) (hs []H, err error) {
	for _, id := range d.IDs {
		h, err := l.store.Begin(req)
		if err != nil {
			return hs, err
		}
		hs = append(hs, h)
		if err := l.store.(Detacher[H]).Adopt(h, id); err != nil { // parse has looked
			return hs, err
		}
	}
	return hs, nil
}

// anyOf is nil if one of the answers is, and a [locker.LostError] if all are.
func anyOf(answers []error, name string) (failed error) {
	var lost *locker.LostError
	for _, err := range answers {
		one, isLost := errors.AsType[*locker.LostError](err)
		switch {
		case err == nil:
			return nil
		case !isLost:
			failed = err
		case lost == nil || one.Reason == locker.ReasonForced: // the others never had it, or it was taken over from them
			lost = one
		}
	}
	if failed != nil {
		return failed
	}
	return &locker.LostError{Name: name, Reason: lost.Reason, Cause: lost.Cause}
}

func (l *Locker[H]) renewAll(ctx context.Context, hs []H, ttl time.Duration) []error {
	ctx, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()
	since := l.now()
	answers := l.renewInStore(ctx, hs)
	if took := l.now().Sub(since); took >= ttl-Drift(ttl) {
		for i, err := range answers {
			if err == nil {
				answers[i] = fmt.Errorf("the answer took %v, and the lock may have ended meanwhile: its TTL is %v", took, ttl)
			}
		}
	}
	return answers
}

// releaseInOrder asks for one after another. A Resume that is still under way moves the lock from one to a later one, and never back. Each has its own time:
// where the store is slow, asking again would begin with the first one again.
func (l *Locker[H]) releaseInOrder(ctx context.Context, hs []H, _ time.Duration) (answers []error) {
	for _, h := range hs {
		err := Caught(func() error {
			ctx, cancel := context.WithTimeout(ctx, resumeTime)
			defer cancel()
			return l.store.Release(ctx, h, 0)
		})
		answers = append(answers, err)
		if _, isLost := errors.AsType[*locker.LostError](err); !isLost {
			break
		}
	}
	return answers
}
