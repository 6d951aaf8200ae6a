// Package mailbox carries words from a store to the waiters of one process, over one
// connection, which it opens for the first of them and closes when there have been
// none for a while.
//
// Redis and PostgreSQL keep a queue of waiters, and send a word to the first when the
// lock is free. A word may be lost, so a waiter also knows when to ask by itself.
package mailbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/lockstile/locker/driver"
)

// Word tells a waiter to do something.
type Word uint8

const (
	// Ask: the lock is reserved for you, or words may have been lost.
	Ask Word = iota + 1
	// StandBy: the lock is reserved for another waiter. Ask when the claim time is over.
	StandBy
	// Look: no words arrive for now. Ask, for the lock may be free, or reserved for you.
	Look
)

const (
	// ClaimTime is how long a lock stays reserved for the first waiter in the queue.
	// One that is dead or paused is skipped after that.
	ClaimTime = 500 * time.Millisecond
	// Pulse is how often a connection on which nothing arrives is asked for a sign
	// of life.
	Pulse = 5 * time.Second

	// deafLook is how often waiters look while the connection cannot be opened again:
	// twice within a claim time, so that none sleeps while the lock is reserved for it.
	deafLook = ClaimTime / 2

	// leeway is added to a time that the store has given in milliseconds, so that
	// it is over by the store's clock.
	leeway = 2 * time.Millisecond
	// reopen is the pause before a connection that broke is opened again.
	reopen = 50 * time.Millisecond
	// closeTime bounds how long Close waits for the reader, which may be opening a
	// connection to a store that is silent.
	closeTime = time.Second
)

// ErrNoWords is what a Listen returns if words can never arrive: waiters poll instead.
var ErrNoWords = errors.New("nothing arrives on this connection")

// ErrNoWordsNow is an [ErrNoWords] that may pass. Those who wait poll, and it is tried
// again when nobody waits any more.
var ErrNoWordsNow = fmt.Errorf("for now, %w", ErrNoWords)

// Listen receives words until the connection breaks, nothing is heard on it, nobody
// waits any more ([Mailbox.Idle]) or ctx ends. It calls [Mailbox.Ready] whenever it
// has begun to listen, and [Mailbox.Receive] with what arrives.
type Listen func(ctx context.Context, m *Mailbox) error

// Mailbox is the waiters of one process.
type Mailbox struct {
	listen Listen

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	boxes  map[string]func(Word) // by the waiter's value
	reader *reader               // nil: nobody listens
	silent bool                  // words do not arrive: see ErrNoWords
	now    bool                  // see ErrNoWordsNow
}

// reader is one goroutine that listens.
type reader struct {
	decided chan struct{} // closed when it listens, or has failed to
	err     error
	channel string      // where words for this process go now; "" while it is opened again
	looks   *time.Timer // while that is so
}

// New returns a Mailbox. Without a Listen words never arrive.
func New(listen Listen) *Mailbox {
	m := &Mailbox{listen: listen, boxes: make(map[string]func(Word)), silent: listen == nil}
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

// Open passes words for value to f from now on, which must not block and must not call
// the Mailbox, and returns when words can arrive. Only then may the value be queued: the
// store takes a waiter for dead if nobody listens for it. Where words do not arrive, Open
// returns at once.
func (m *Mailbox) Open(ctx context.Context, value string, f func(Word)) error {
	m.mu.Lock()
	m.boxes[value] = f
	if m.silent {
		m.mu.Unlock()
		return nil
	}
	if m.reader == nil && m.ctx.Err() == nil {
		m.reader = &reader{decided: make(chan struct{})}
		m.done.Add(1)
		go m.read(m.reader)
	}
	r := m.reader
	m.mu.Unlock()
	err := context.Canceled
	if r != nil {
		err = r.await(ctx, m.ctx)
	}
	if err != nil {
		m.Drop(value)
	}
	return err
}

func (r *reader) await(ctx, closing context.Context) error {
	select {
	case <-r.decided:
		return r.err
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
	if len(m.boxes) == 0 && m.now {
		m.silent, m.now = false, false
	}
}

// Channel is where words for this process go now, "" if nobody listens.
func (m *Mailbox) Channel() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reader == nil {
		return ""
	}
	return m.reader.channel
}

// Silent reports whether words are known not to arrive.
func (m *Mailbox) Silent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.silent
}

// read listens until Close, or until there have been no waiters for a while.
func (m *Mailbox) read(r *reader) {
	defer m.done.Done()
	for {
		err := driver.Caught(func() error { return m.listen(m.ctx, m) })
		if m.over(r, err) {
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

// over reports whether the reader stops, and if so makes room for another.
func (m *Mailbox) over(r *reader, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deaf(r)
	if m.silent = errors.Is(err, ErrNoWords); m.silent {
		m.now = errors.Is(err, ErrNoWordsNow)
		for _, box := range m.boxes {
			box(Ask)
		}
	}
	switch {
	case r.undecided():
		if !m.silent {
			r.err = err
		}
		close(r.decided)
	case !m.silent && len(m.boxes) > 0 && m.ctx.Err() == nil:
		return false
	}
	m.reader = nil
	return true
}

func (r *reader) undecided() bool {
	select {
	case <-r.decided:
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

// Ready says that words which are sent to channel arrive from now on, until the Listen
// that calls it returns. Words that were sent before may be lost, so all waiters ask the store.
func (m *Mailbox) Ready(channel string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reader.channel = channel
	if m.reader.undecided() {
		close(m.reader.decided)
		return
	}
	for _, box := range m.boxes {
		box(Ask)
	}
}

// Deaf says that the connection broke, and that the Listen that calls it tries to open it again:
// no words arrive until the next Ready.
func (m *Mailbox) Deaf() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deaf(m.reader)
}

// deaf has waiters look from time to time until words arrive again. The first look is not at once: most
// connections are soon open again, and then everybody asks. The mutex is held.
func (m *Mailbox) deaf(r *reader) {
	r.channel = ""
	if r.looks == nil {
		r.looks = time.AfterFunc(deafLook, func() { m.look(r) })
	}
}

func (m *Mailbox) look(r *reader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r != m.reader || r.channel != "" || m.ctx.Err() != nil {
		r.looks = nil
		return
	}
	for _, box := range m.boxes {
		box(Look)
	}
	r.looks.Reset(deafLook)
}

// Left is the time that is left of a lease, as a store has given it in milliseconds. Somebody
// else's key may have any number, and a little may be added to it.
func Left(ms int64) time.Duration {
	return time.Duration(min(max(0, ms), int64(math.MaxInt64/2/time.Millisecond))) * time.Millisecond
}

// Receive delivers what a store has sent: a waiter's value, to which a StandBy has an
// exclamation mark before it.
func (m *Mailbox) Receive(text string) {
	if value, ok := strings.CutPrefix(text, "!"); ok {
		m.Deliver(StandBy, value)
	} else {
		m.Deliver(Ask, text)
	}
}

// Deliver passes a word on to the waiter with this value. One that waits no longer needs
// none: it has withdrawn, or is about to, which reserves the lock for the next.
func (m *Mailbox) Deliver(w Word, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if box, ok := m.boxes[value]; ok {
		box(w)
	}
}

// Box holds the words for one waiter. Put never blocks. A full box has room for an Ask, in the
// place of its oldest word: a waiter that was paused may find many a StandBy, and its own claim
// lapses before the time that these tell it to wait is over.
type Box chan Word

// NewBox returns an empty one.
func NewBox() Box { return make(Box, 4) }

// Put is for [Mailbox.Open].
func (b Box) Put(w Word) {
	for range 2 {
		select {
		case b <- w:
			return
		default:
		}
		if w == StandBy {
			return // the waiter stands by already, or asks
		}
		select {
		case <-b:
		default:
		}
	}
}

// Sleep returns nil when it is time to ask the store: at the word Ask, after a StandBy
// and ClaimTime, or after d.
func (b Box) Sleep(ctx context.Context, d time.Duration) error {
	by := time.Now().Add(d + leeway)
	timer := time.NewTimer(d + leeway)
	defer timer.Stop()
	for {
		select {
		case w := <-b:
			if w != StandBy {
				return nil
			}
			timer.Reset(min(ClaimTime+leeway, time.Until(by)))
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
