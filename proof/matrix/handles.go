package matrix

import (
	"context"
	"errors"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

var needsHandles = needs(func(s *System) bool { return s.detaches }, "its locks end with their process, and no other process can go on with one")

// detach has the holder detach its lock. If the answer has no handle, the lock may still be held.
func (l workerLock) detach() report {
	p := l.Worker.play
	r, err := l.Worker.answer(p.ctx, l.tell(order{Verb: "detach", Bound: patience}))
	p.must(err)
	switch {
	case r.NoKind:
		p.History.NoteUntrue("it declares that its locks can leave their process, and refuses to detach one: %s", r.Err)
	case r.Err != "":
		p.History.Mark("%s does not detach its lock: %s", l.Worker.Name, r.Err)
	}
	return r
}

// SleepThenWrite is LookThenSleepThenWrite of a process that has detached its lock since its look.
func (l workerLock) SleepThenWrite(detached report, value int) (wake func()) {
	w := l.Worker
	w.play.History.Fault("%s has looked before that: it held the lock. It is stopped before it writes", w.Name)
	goOn := l.midway(order{Verb: "write", Value: value, Looked: detached.Asked})
	return func() { goOn() }
}

// resume has the worker go on with the lock of a handle, and claims the storage for it. A *refusal is a Resume that got no lock.
func (w *worker) resume(o order) (workerLock, error) {
	o.Verb, o.Bound = "resume", patience
	w.play.History.Mark("%s resumes %s", w.Name, o.Name)
	l, err := w.claimed(w.granted(o.Name, w.tell(o)))
	if errors.As(err, new(*refusal)) {
		w.play.History.Mark("%v", err)
	}
	return l, err
}

// renewHandle has the worker renew the lock of a handle, which may have ended.
func (w *worker) renewHandle(o order) {
	o.Verb, o.Bound = "renew handle", patience
	r, err := w.answer(w.play.ctx, w.tell(o))
	w.play.must(err)
	if r.Err != "" {
		w.play.History.Mark("%s does not renew the handle of %s: %s", w.Name, o.Name, r.Err)
	}
}

// detach says when it was asked, as a look would: only a lock that is held can be detached, so it was held then.
func (w *workerProcess) detach(ctx context.Context, o order, r *report) {
	r.Kind = kindDetached
	l := w.lockOf(o, r)
	if l == nil {
		return
	}
	err := errors.ErrUnsupported
	if lock, ok := l.Holding.(interface {
		Detach(ctx context.Context) (locker.Handle, error)
	}); ok {
		r.Handle, err = lock.Detach(ctx)
	}
	r.Deadline = deadline(l)
	r.fail(err)
}

// resume is a lockFunc.
func (w *workerProcess) resume(h locker.Handle) lockFunc {
	return func(ctx context.Context, req *driver.Request) (Holding, error) {
		if peer, ok := w.peer.(resumer); ok {
			return peer.Resume(ctx, h, req)
		}
		return nil, errors.ErrUnsupported
	}
}

func (w *workerProcess) renewHandle(ctx context.Context, o order, r *report) {
	r.Kind = kindRenewed
	if peer, ok := w.peer.(resumer); ok {
		r.fail(peer.RenewHandle(ctx, o.Handle))
		return
	}
	r.fail(errors.ErrUnsupported)
}
