package matrix

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

// Opener makes the Locker that a worker process uses.
type Opener func(ctx context.Context, url string) (locker.Locker, error)

// BecomeWorker makes this process a worker if [Run] has started it as one. Then it does
// not return: the process ends with the one that called Run. In any other process it does
// nothing. A program that calls Run calls it first in main; a test, in TestMain.
func BecomeWorker(open Opener) {
	BecomePeerWorker(func(ctx context.Context, url string) (Peer, error) {
		l, err := open(ctx, url)
		return AsPeer(l), err
	})
}

// BecomePeerWorker is BecomeWorker for locks that are no [locker.Locker].
func BecomePeerWorker(open PeerOpener) {
	canWork = true
	if len(os.Args) != 3 || os.Args[1] != workerArgument {
		return
	}
	if err := work(context.Background(), open, os.Args[2], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// workerArgument makes a process a worker. The URL of the store follows it.
const workerArgument = "lockstile-matrix-worker"

// canWork says that this program becomes a worker when it is started again.
var canWork bool

// workerCommand returns the command that becomes a worker for the store at url. A program
// that does not call BecomeWorker must not be started: it would call Run again.
func workerCommand(url string) (*exec.Cmd, error) {
	if !canWork {
		return nil, errors.New("matrix: this program cannot start workers: it does not call BecomeWorker")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("matrix: worker: %w", err)
	}
	return exec.Command(self, workerArgument, url), nil
}

// work opens url and then obeys the orders that it reads, until in ends.
func work(ctx context.Context, open PeerOpener, url string, in io.Reader, out io.Writer) error {
	peer, err := open(ctx, url)
	if err != nil {
		return err
	}
	w := &workerProcess{peer: peer, out: newLines(out), held: make(map[int]numbered)}
	if err := w.out.send(report{Kind: kindReady, At: driver.Now()}); err != nil {
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

// workerProcess is the state of a worker process.
type workerProcess struct {
	peer Peer
	out  *lines

	mu     sync.Mutex
	held   map[int]numbered // by the ID of the order that got it
	grants fencing.Token    // how many there were: the tokens of locks that have none
}

func (w *workerProcess) obey(ctx context.Context, o order) {
	if o.Bound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Bound)
		defer cancel()
	}
	r := report{ID: o.ID, Name: o.Name, Asked: driver.Now()}
	var granted *numbered
	switch o.Verb {
	case "lock":
		granted = w.lock(ctx, o, w.peer.Lock, &r)
	case "try":
		granted = w.lock(ctx, o, w.peer.TryLock, &r)
	case "write":
		w.write(ctx, o, &r)
	case "add":
		w.add(ctx, o, &r)
	case "unlock":
		w.unlock(ctx, o, &r)
	case "renew":
		w.renew(ctx, o, &r)
	case "detach":
		w.detach(ctx, o, &r)
	case "resume":
		granted = w.lock(ctx, o, w.resume(o.Handle), &r)
	case "renew handle":
		w.renewHandle(ctx, o, &r)
	}
	r.At = driver.Now()
	_ = w.out.send(r) // without a reader there is nobody to tell
	if granted != nil {
		go w.watch(*granted) // only now: a loss that is reported before the grant would end nothing
	}
}

type lockFunc func(context.Context, *driver.Request) (Holding, error)

func (w *workerProcess) lock(ctx context.Context, o order, lock lockFunc, r *report) *numbered {
	var got numbered
	l, err := lock(ctx, &driver.Request{Name: o.Name, Kind: o.Kind, Slots: o.Slots, TTL: o.TTL, Renew: !o.NoRenew})
	if err == nil {
		got, err = w.keep(o, l)
	}
	if err != nil {
		r.Kind = kindRefused
		r.fail(err)
		return nil
	}
	r.Kind, r.NoRenew = kindGranted, o.NoRenew
	r.about(got)
	return &got
}

func (w *workerProcess) keep(o order, l Holding) (numbered, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants++
	n := numbered{l, o.ID, l.Token(), o.Kind == locker.KindShared, o.Name}
	switch of, _ := l.(kinds); o.Kind {
	case locker.KindShared:
		n.number = fencing.Token(of.SharedToken())
	case locker.KindSlots:
		if of.Slot() < 0 || of.Slot() >= o.Slots {
			return numbered{}, fmt.Errorf("matrix: slot %d of %d was granted", of.Slot(), o.Slots)
		}
		n.resource = locker.SlotResource(o.Name, of.Slot())
	}
	if n.number == 0 {
		n.number = w.grants
	}
	w.held[o.ID] = n
	return n, nil
}

// about puts into the report which lock it is about.
func (r *report) about(n numbered) {
	r.Lock, r.Name, r.Token, r.Shared, r.Deadline = n.id, n.resource, uint64(n.number), n.shared, deadline(n)
}

// watch reports the loss of a lock when the holder hears of it.
func (w *workerProcess) watch(l numbered) {
	<-l.Lost()
	r := report{Kind: kindLost, At: driver.Now()}
	r.about(l)
	r.fail(l.Err())
	_ = w.out.send(r) // without a reader there is nobody to tell
}

// write looks whether the lock is held, unless it has looked, and then writes, which is the mistake that tokens
// are for: anything can happen in between.
func (w *workerProcess) write(ctx context.Context, o order, r *report) {
	r.Kind, r.Value = kindWrote, o.Value
	l := w.lockOf(o, r)
	if l == nil {
		return
	}
	looked := o.Looked
	if looked == 0 {
		looked = driver.Now()
		if err := l.Err(); err != nil {
			r.fail(err)
			return
		}
	}
	if o.Stop {
		stopMyself()
	}
	if transaction, ok := w.peer.(Writer); ok {
		r.fail(transaction.Write(ctx, o.Name, l.Token(), o.Value))
		return
	}
	_ = w.out.send(report{Kind: kindWrite, Name: r.Name, Token: r.Token, Shared: r.Shared, Value: o.Value, At: looked})
}

func (w *workerProcess) unlock(ctx context.Context, o order, r *report) {
	r.Kind = kindFreed
	if l := w.lockOf(o, r); l != nil {
		r.fail(l.Unlock(ctx))
	}
}

func (w *workerProcess) renew(ctx context.Context, o order, r *report) {
	r.Kind = kindRenewed
	if l := w.lockOf(o, r); l != nil {
		r.fail(l.Renew(ctx))
	}
}

// lockOf returns the lock that an order is about, and puts its token and deadline into
// the report; or an error, if there is no lock.
func (w *workerProcess) lockOf(o order, r *report) *numbered {
	w.mu.Lock()
	l, ok := w.held[o.Lock]
	w.mu.Unlock()
	if !ok {
		r.fail(errors.New("no lock"))
		return nil
	}
	r.about(l)
	return &l
}

// deadline is on the clock of driver.Now; 0 if there is none.
func deadline(l Holding) driver.Instant {
	d := l.Deadline()
	if d.IsZero() {
		return 0
	}
	return driver.Now().Add(time.Until(d))
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
	r.NoKind = errors.Is(err, errors.ErrUnsupported)
	r.Nothing = errors.As(err, new(lockerError)) && !r.Unknown
	if lost := (*locker.LostError)(nil); errors.As(err, &lost) {
		r.Reason = lost.Reason
	}
	if again := (*locker.ResumeError)(nil); errors.As(err, &again) {
		r.Handle = again.Handle
	}
}
