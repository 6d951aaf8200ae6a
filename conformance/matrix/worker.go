package matrix

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// Opener makes the Locker that a worker process uses.
type Opener func(ctx context.Context, url string) (locker.Locker, error)

// Work is a worker process: it opens url and then does what it is told on in
// until in ends. The program that calls [Run] starts itself again and has the
// child call Work.
func Work(ctx context.Context, open Opener, url string, in io.Reader, out io.Writer) error {
	return WorkAsPeer(ctx, func(ctx context.Context, url string) (Peer, error) {
		l, err := open(ctx, url)
		return AsPeer(l), err
	}, url, in, out)
}

// WorkAsPeer is Work for locks of all kinds.
func WorkAsPeer(ctx context.Context, open PeerOpener, url string, in io.Reader, out io.Writer) error {
	peer, err := open(ctx, url)
	if err != nil {
		return err
	}
	w := &worker{peer: peer, out: newLines(out), held: make(map[string]Holding)}
	if err := w.out.send(report{Kind: kindReady, At: locker.Now()}); err != nil {
		return err
	}
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		var o order
		if err := json.Unmarshal(scanner.Bytes(), &o); err != nil {
			return fmt.Errorf("matrix: worker: %w", err)
		}
		go w.obey(ctx, o)
	}
	return scanner.Err()
}

type worker struct {
	peer Peer
	out  *lines

	mu     sync.Mutex
	held   map[string]Holding // by name; the last one
	grants fencing.Token      // how many there were, for want of a token
}

func (w *worker) obey(ctx context.Context, o order) {
	if o.Bound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Bound)
		defer cancel()
	}
	r := report{ID: o.ID, Name: o.Name, Asked: locker.Now()}
	var granted Holding
	switch o.Verb {
	case "lock":
		granted = w.lock(ctx, o, w.peer.Lock, &r)
	case "try":
		granted = w.lock(ctx, o, w.peer.TryLock, &r)
	case "write":
		w.write(ctx, o, &r)
	case "unlock":
		w.unlock(ctx, o, &r)
	case "renew":
		w.renew(ctx, o, &r)
	}
	r.At = locker.Now()
	_ = w.out.send(r) // without a reader there is nobody to tell
	if granted != nil {
		go w.watch(granted) // only now: a loss that is told of before its grant would end nothing
	}
}

type lockFunc func(context.Context, *locker.Request) (Holding, error)

func (w *worker) lock(ctx context.Context, o order, lock lockFunc, r *report) Holding {
	l, err := lock(ctx, &locker.Request{Name: o.Name, TTL: o.TTL, Renew: !o.NoRenew})
	if err != nil {
		r.Kind = kindRefused
		r.fail(err)
		return nil
	}
	l = w.keep(o.Name, l)
	r.Kind, r.Token, r.Deadline = kindGranted, uint64(l.Token()), deadline(l)
	return l
}

func (w *worker) keep(name string, l Holding) Holding {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants++
	if l.Token() == 0 {
		l = numbered{l, w.grants}
	}
	w.held[name] = l
	return l
}

// watch tells when the holder is told.
func (w *worker) watch(l Holding) {
	<-l.Lost()
	r := report{Kind: kindLost, Name: l.Name(), Token: uint64(l.Token()), At: locker.Now(), Deadline: deadline(l)}
	r.fail(l.Err())
	_ = w.out.send(r) // without a reader there is nobody to tell
}

// write looks whether the lock is held and writes if it is: the mistake that
// tokens are there for. Between the two lines anything can happen.
func (w *worker) write(ctx context.Context, o order, r *report) {
	r.Kind, r.Value = kindWrote, o.Value
	l := w.lockOf(o, r)
	if l == nil {
		return
	}
	if err := l.Err(); err != nil {
		r.fail(err)
		return
	}
	if o.Stop {
		stopMyself()
	}
	if inside, ok := w.peer.(Writer); ok {
		r.fail(inside.Write(ctx, o.Name, l.Token(), o.Value))
		return
	}
	_ = w.out.send(report{Kind: kindWrite, Name: o.Name, Token: uint64(l.Token()), Value: o.Value, At: locker.Now()})
}

func (w *worker) unlock(ctx context.Context, o order, r *report) {
	r.Kind = kindFreed
	if l := w.lockOf(o, r); l != nil {
		r.fail(l.Unlock(ctx))
	}
}

func (w *worker) renew(ctx context.Context, o order, r *report) {
	r.Kind = kindRenewed
	if l := w.lockOf(o, r); l != nil {
		r.fail(l.Renew(ctx))
	}
}

// lockOf returns the lock that an order is about, and puts it into the report: also
// that there is none.
func (w *worker) lockOf(o order, r *report) Holding {
	w.mu.Lock()
	l := w.held[o.Name]
	w.mu.Unlock()
	if l == nil {
		r.fail(errors.New("no lock"))
		return nil
	}
	r.Token, r.Deadline = uint64(l.Token()), deadline(l)
	return l
}

// deadline is on the clock of locker.Now; 0 if there is none.
func deadline(l Holding) locker.Instant {
	d := l.Deadline()
	if d.IsZero() {
		return 0
	}
	return locker.Now().Add(time.Until(d))
}

func (r *report) fail(err error) {
	if err == nil {
		return
	}
	r.Err = err.Error()
	r.Taken = errors.Is(err, locker.ErrTaken)
	r.Unknown = errors.Is(err, locker.ErrOutcomeUnknown)
	r.NoStore = errors.Is(err, locker.ErrUnavailable)
	r.Lost = errors.Is(err, locker.ErrLost)
	r.Nothing = errors.As(err, new(lockerError)) && !r.Unknown
	if lost := (*locker.LostError)(nil); errors.As(err, &lost) {
		r.Reason = lost.Reason
	}
}
