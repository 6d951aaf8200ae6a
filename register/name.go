package register

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

const (
	// requestTime bounds a request to the store.
	requestTime = 5 * time.Second
	// linger is for how long a watch goes on when nobody waits any more: those who come again soon need not begin anew, and a
	// holder knows who has queued meanwhile.
	linger = time.Second
	// longestPause is the longest pause between two tries.
	longestPause = time.Second
	// wallMargin is by how much the wall clocks of two clients may differ, where the store has no Age.
	wallMargin = 5 * time.Second
	// A process that takes a name again and again leaves gaps for others. The first one is as long as gap requests take. Another process needs two
	// requests, for it reads before it writes, and its requests may take longer: so each gap is twice as long as the one before, up to longestGap.
	gap, longestGap = 4, 50 * time.Millisecond
	// streak is for how long it writes before the next gap, in lengths of that gap.
	streak = 6
	// few is the longest pause of a process whose write was refused, in requests, for itself and for each who holds the lock or waits for it.
	few = 16
	// remembered is for how long a name is remembered at least when nobody uses it.
	remembered = time.Minute
)

var (
	errSilent = fmt.Errorf("no answer within %v", requestTime)
	errBehind = errors.New("the store answers with an older record than before: a copy of it is behind, or it was deleted, or restored from a backup")
)

// name is what this process knows of one name. Each of its writes is a heartbeat of all its attempts.
type name struct {
	s    *store
	key  string
	busy chan struct{} // a semaphore: one write at a time, but nobody waits for it for long

	uses   int         // guarded by the store's mutex
	forget *time.Timer // the same

	mu      sync.Mutex // guards what follows; never held while the store is asked
	record  *record    // the newest that this process knows, not to be changed
	version string
	known   bool           // nothing says that there is a newer one
	crowded bool           // others write too, so that there probably is
	mine    string         // the version of this process's last write
	heard   driver.Instant // when the record arrived
	alone   driver.Instant // when the present run of writes without a gap began
	gap     time.Duration  // how long the next one is
	behind  driver.Instant // since when the store has answered with older records, or 0
	view    view
	own     map[string]struct{} // ids of attempts that ask for the lock, or have it
	news    chan struct{}       // closed when there is a newer record
	waiting int
	unwatch context.CancelFunc // nil while nobody watches
	quiet   *time.Timer        // ends the watch
}

// verdict is what a step wants.
type verdict uint8

const (
	write  verdict = iota // the store refuses it if the record is another by now
	claim                 // the same, and others wait for it
	answer                // it is a "no": the record must have been read since the call began
	pass                  // nobody is told anything
)

// step changes a record, in which those who are dead are gone. It asks nobody.
type step func(r *record, now driver.Instant) (verdict, error)

// how is how a step is carried out.
type how uint8

const (
	guess how = iota // on the record as it is known; a refused write is tried again at once
	hurry            // the same, but where others write the record is read first
	yield            // the same, and after a refused write others go first
	look             // the same, and the record is read first in any case
)

// tries are the tries at a step, and what has become of it.
type tries struct {
	how  how
	do   step
	ask  bool // has to ask for the record
	read bool // has done so

	sent   *record // by the last one
	claim  bool
	since  driver.Instant // when it was sent
	order  uint64         // of the newest record
	unsure bool           // it may have been written, or be written yet
}

// change carries out a step on the newest record.
func (n *name) change(ctx context.Context, how how, do step) (*tries, error) {
	t := &tries{how: how, do: do, ask: how == look}
	most := n.s.claimTime() / 4 // a waiter that sleeps may become the first
	for tried, pause := 0, n.s.rtt(); ; tried++ {
		again, err := n.try(ctx, t)
		if !again {
			return t, err
		}
		first := how < yield || t.claim
		if t.sent == nil || first && tried < 2 { // it was not refused, or goes first
			continue
		}
		if pause = min(2*pause, most); !first { // where there are few, short pauses find the gaps that leaveGap makes
			pause = min(min(pause, few*n.s.rtt())*time.Duration(1+len(t.sent.Holds)+len(t.sent.Queue)), most)
		}
		t.ask = true // also of a watch, which may be behind
		if !sleep(ctx, mathrand.N(pause)) {
			return t, context.Cause(ctx)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (n *name) try(ctx context.Context, t *tries) (again bool, err error) {
	n.mu.Lock()
	t.ask = t.ask || !n.known || t.how > guess && n.crowded && n.unwatch == nil
	n.mu.Unlock()
	if t.ask {
		if err := n.read(ctx); err != nil {
			return false, err
		}
		t.ask, t.read = false, true
	}
	leave, err := n.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	n.mu.Lock()
	if t.sent != nil && n.record.Nonce == t.sent.Nonce { // its client has sent it twice, and was told of the second one
		n.mine, t.unsure = n.version, false
		n.mu.Unlock()
		return false, nil
	}
	t.since = n.s.now() // before all that is read of other clocks
	r := n.living(t.since)
	v, err := t.do(r, t.since)
	if err != nil || v > claim {
		defer n.mu.Unlock()
		t.order, t.unsure = n.record.Order, false
		t.ask = v != pass && !t.read
		return t.ask, err
	}
	r.Wall = 0
	if !n.s.opts.Age {
		r.Wall = time.Now().UnixMilli()
	}
	r.next(rand.Text(), n.alive, func(e *entry) time.Duration { return n.view.idle(e, t.since) })
	version := n.version
	n.known = false
	n.mu.Unlock()
	t.sent, t.claim, t.order = r, v == claim, r.Order
	return n.swap(ctx, t, version)
}

// leaveGap waits if this process has taken the name again and again. Its writes follow one another so closely that those of others, who have to
// read first, would all be refused, and nobody would get even a place in the queue.
func (n *name) leaveGap(ctx context.Context) {
	least := gap * n.s.rtt()
	n.mu.Lock()
	now := n.s.now()
	n.gap = max(n.gap, least)
	if n.version != n.mine || now.Sub(n.heard) >= n.gap { // others write, or have had the time
		n.alone, n.gap = now, least
	}
	pause := n.gap
	due := now.Sub(n.alone) > streak*pause
	if due {
		n.alone, n.gap = now.Add(pause), min(2*pause, max(longestGap, least))
	}
	n.mu.Unlock()
	if due {
		sleep(ctx, pause)
	}
}

// enter waits until no other write of this process is under way, and returns what ends this one. It does not wait for long: of two
// writes the store refuses one, and a connection may be silent.
func (n *name) enter(ctx context.Context) (leave func(), err error) {
	select {
	case n.busy <- struct{}{}:
		return func() { <-n.busy }, nil
	case <-time.After(min(4*n.s.rtt(), 100*time.Millisecond)):
		return func() {}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// living is a copy of the record without those who are dead. The mutex is held.
func (n *name) living(now driver.Instant) *record { return n.view.living(n.record, now, n.alive) }

// swap writes the record that is to be sent in place of the one with this version.
func (n *name) swap(ctx context.Context, t *tries, version string) (again bool, err error) {
	if err := t.sent.check(n.key); err != nil {
		return false, driver.Unfit(fmt.Errorf("no program could read the record that this would make: %w", err))
	}
	next, err := ask(ctx, func(ctx context.Context) (string, error) { return n.s.Swap(ctx, n.key, version, t.sent.encode()) })
	arrived := n.s.now()
	t.unsure = err != nil && !errors.Is(err, locker.ErrRefused)
	if err != nil && !errors.Is(err, ErrChanged) {
		return false, err
	}
	n.s.measure(arrived.Sub(t.since))
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.crowded = true
		return true, nil
	}
	n.mine = next
	if t.order > n.record.Order {
		n.learn(t.sent, next, t.since, arrived, 0)
	}
	return false, nil
}

// read asks for the record.
func (n *name) read(ctx context.Context) error {
	for pause := 10 * time.Millisecond; ; pause *= 2 {
		asked := n.s.now()
		e, err := ask(ctx, func(ctx context.Context) (Entry, error) { return n.s.Get(ctx, n.key) })
		if err == nil {
			err = n.take(e, asked, pause > 100*time.Millisecond)
		}
		if !errors.Is(err, errBehind) || pause > longestPause || !sleep(ctx, pause) {
			return err
		}
	}
}

// take notes an entry that was asked for. One that is older than what the store had before it was asked is an error. If that goes on until
// all who were there have lost their locks, and it persists when it is asked for again, the store was restored from a backup.
func (n *name) take(e Entry, asked driver.Instant, persists bool) error {
	r, err := n.parse(e)
	if err != nil {
		return err
	}
	age := n.s.age(e, r) // before the clock is read from which it counts back
	arrived := n.s.now()
	n.s.measure(arrived.Sub(asked))
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.record == nil || r.Order >= n.record.Order:
	case n.heard > asked: // it was overtaken
		return nil
	case n.behind == 0:
		n.behind = arrived
		return errBehind
	case !persists || arrived.Sub(n.behind) < n.record.span():
		return errBehind
	default:
		n.view = view{}
	}
	n.learn(r, e.Version, asked, arrived, age)
	n.crowded = n.crowded && e.Version != n.mine
	return nil
}

// parse reads an entry. Where there is none, the tokens begin at the wall clock, so that they rise although the record that there was
// has been deleted.
func (n *name) parse(e Entry) (*record, error) {
	if len(e.Record) == 0 {
		return &record{Format: format, Name: n.key, Last: number(time.Now().UnixMicro())}, nil
	}
	return parse(n.key, e.Record)
}

// learn notes the newest record, and wakes those who wait for one. The mutex is held.
func (n *name) learn(r *record, version string, asked, arrived driver.Instant, age time.Duration) {
	n.record, n.version, n.known, n.heard, n.behind = r, version, true, arrived, 0
	n.view.observe(r, asked, arrived, age)
	n.tell()
}

func (n *name) tell() {
	close(n.news)
	n.news = make(chan struct{})
}

// alive reports whether e is an attempt of this process. The mutex is held.
func (n *name) alive(e *entry) bool {
	_, alive := n.own[e.ID]
	return alive && !e.Kept
}

func (n *name) join(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.own[id] = struct{}{}
}

func (n *name) part(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.own, id)
}

// wait waits until there is a newer record than that with this order, which it reports, or ctx ends, or it is time to look.
func (n *name) wait(ctx context.Context, order uint64, at driver.Instant) bool {
	n.mu.Lock()
	news, newer := n.news, n.record.Order > order
	n.mu.Unlock()
	if newer {
		return true
	}
	select {
	case <-news:
		return true
	case <-time.After(at.Sub(n.s.now())):
	case <-ctx.Done():
	}
	return false
}

// follow has records pushed, if the store can, until the function that it returns is called, and for a while longer.
func (n *name) follow() (stop func()) {
	if n.s.watcher == nil {
		return func() {}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting++
	if n.unwatch == nil {
		ctx, cancel := context.WithCancel(context.Background())
		n.unwatch = cancel
		go n.watch(ctx)
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.waiting--; n.waiting == 0 {
			if n.quiet != nil {
				n.quiet.Stop()
			}
			n.quiet = time.AfterFunc(linger, n.endWatch)
		}
	}
}

func (n *name) endWatch() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting == 0 && n.unwatch != nil {
		n.unwatch()
		n.unwatch = nil
	}
}

// watch watches until ctx ends. While a watch is broken, waiters look now and then.
func (n *name) watch(ctx context.Context) {
	for pause := n.s.rtt(); ; pause = min(2*pause, longestPause) {
		began := n.s.now()
		_ = driver.Caught(func() error { return n.s.watcher.Watch(ctx, n.key, n.push) })
		n.mu.Lock()
		n.known = false
		n.tell() // waiters look for themselves
		n.mu.Unlock()
		if n.s.now().Sub(began) > longestPause {
			pause = n.s.rtt()
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// push takes a record that comes by itself. Waiters find what is no record of ours when they look.
func (n *name) push(e Entry) {
	r, err := n.parse(e)
	arrived := n.s.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && r.Order > n.record.Order {
		n.learn(r, e.Version, arrived, arrived, 0)
	}
}
