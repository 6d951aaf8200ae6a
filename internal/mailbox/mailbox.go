// Package mailbox carries words from a store to the waiters of one process, over one
// connection, which it opens for the first of them and closes when there have been
// none for a while.
//
// Redis and PostgreSQL keep a queue of waiters, and tell the one whose turn it is. A
// word may be lost. So whoever waits also knows when to look by itself.
package mailbox

import (
	"context"
	"sync"
	"time"
)

// Word tells a waiter to do something.
type Word uint8

const (
	// Ask: the lock is reserved for you, or words may have been lost.
	Ask Word = iota + 1
	// StandBy: it is reserved for the waiter before you; ask when the claim time is
	// over.
	StandBy
)

const (
	// ClaimTime is how long a lock stays reserved for the waiter whose turn it is.
	// One that is dead or paused is skipped after that.
	ClaimTime = 500 * time.Millisecond
	// Pulse is how often a connection on which nothing arrives is asked for a sign
	// of life.
	Pulse = 5 * time.Second

	// leeway lets the store's clock pass the millisecond that it spoke of.
	leeway = 2 * time.Millisecond
	// reopen is the pause before a connection that broke is opened again.
	reopen = 50 * time.Millisecond
	// closeTime bounds what Close waits for a connection that is being opened to a
	// store that is silent.
	closeTime = time.Second
)

// Listen receives words until the connection breaks, nothing is heard on it, nobody
// waits any more ([Mailbox.Idle]) or ctx ends. It calls [Mailbox.Ready] whenever it
// has begun to listen, and [Mailbox.Deliver] with what arrives.
type Listen func(ctx context.Context, m *Mailbox) error

// Mailbox is the waiters of one process.
type Mailbox struct {
	listen Listen

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	boxes map[string]func(Word) // by the waiter's value
	line  *line                 // nil: nobody listens
}

// line is the life of one reader.
type line struct {
	decided chan struct{} // closed when it listens or has failed to
	err     error
	channel string // where words for this process go now; "" while it is opened again
}

// New returns a Mailbox.
func New(listen Listen) *Mailbox {
	m := &Mailbox{listen: listen, boxes: make(map[string]func(Word))}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Close ends the connection. Waiters get no more words.
func (m *Mailbox) Close() {
	m.mu.Lock()
	m.cancel() // under the mutex, so that Open starts no reader after it
	m.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		m.done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTime):
	}
}

// Open has words for value passed to f, which must not block and must not call the
// Mailbox, and waits until they can arrive. Only then may the value be queued: a
// waiter that nobody listens for is taken for dead.
func (m *Mailbox) Open(ctx context.Context, value string, f func(Word)) error {
	m.mu.Lock()
	m.boxes[value] = f
	if m.line == nil && m.ctx.Err() == nil {
		m.line = &line{decided: make(chan struct{})}
		m.done.Add(1)
		go m.read(m.line)
	}
	line := m.line
	m.mu.Unlock()
	err := context.Canceled
	if line != nil {
		err = line.await(ctx, m.ctx)
	}
	if err != nil {
		m.Drop(value)
	}
	return err
}

func (s *line) await(ctx, closing context.Context) error {
	select {
	case <-s.decided:
		return s.err
	case <-closing.Done():
		return context.Canceled
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Drop ends Open.
func (m *Mailbox) Drop(value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.boxes, value)
}

// Channel is where words for this process go now, "" if nobody listens.
func (m *Mailbox) Channel() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.line == nil {
		return ""
	}
	return m.line.channel
}

// read listens until Close, or until nobody has been waiting for a while.
func (m *Mailbox) read(s *line) {
	defer m.done.Done()
	for {
		err := m.listen(m.ctx, m)
		if m.over(s, err) {
			return
		}
		m.Rest()
	}
}

// Rest is the pause before a connection is opened again.
func (m *Mailbox) Rest() {
	select {
	case <-time.After(reopen):
	case <-m.ctx.Done():
	}
}

// over decides whether the reader stops, and if so makes room for another.
func (m *Mailbox) over(s *line, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.channel = ""
	switch {
	case s.undecided():
		s.err = err
		close(s.decided)
	case len(m.boxes) > 0 && m.ctx.Err() == nil:
		return false
	}
	m.line = nil
	return true
}

func (s *line) undecided() bool {
	select {
	case <-s.decided:
		return false
	default:
		return true
	}
}

// Idle reports whether nobody waits.
func (m *Mailbox) Idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.boxes) == 0
}

// Ready says that words arrive from now on that are sent to channel. What was sent
// before is lost, so everybody looks.
func (m *Mailbox) Ready(channel string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.line == nil {
		return
	}
	m.line.channel = channel
	if m.line.undecided() {
		close(m.line.decided)
		return
	}
	for _, box := range m.boxes {
		box(Ask)
	}
}

// Deliver passes a word on to the waiter with this value. One who waits no longer needs
// none: it has withdrawn, or is about to, which gives its turn back.
func (m *Mailbox) Deliver(w Word, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if box, ok := m.boxes[value]; ok {
		box(w)
	}
}

// Box holds the words for one waiter. Its Put never blocks: a waiter with a full box
// looks at the store anyway.
type Box chan Word

// NewBox returns an empty one.
func NewBox() Box { return make(Box, 4) }

// Put is for [Mailbox.Open].
func (b Box) Put(w Word) {
	select {
	case b <- w:
	default:
	}
}

// Sleep returns nil when it is time to look at the store: at a word, or after d.
func (b Box) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d + leeway)
	defer timer.Stop()
	for {
		select {
		case w := <-b:
			if w != StandBy {
				return nil
			}
			timer.Reset(ClaimTime + leeway)
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
