package redisnode

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pulse is how often a subscription on which nothing arrives is asked
	// for a sign of life. Two pulses without one, and it is opened again.
	pulse = 5 * time.Second
	// reopen is the pause before a broken subscription is opened again.
	reopen = 50 * time.Millisecond
	// closeTime bounds what Close waits for the reader: the client does not
	// give up a connection that it is opening, to a server that is silent.
	closeTime = time.Second
)

// Letter tells a waiter to do something.
type Letter uint8

const (
	// YourTurn: the lock is reserved for you, ask for it.
	YourTurn Letter = iota + 1
	// StandBy: it is reserved for the waiter before you; ask when the claim
	// time is over.
	StandBy
	// LookAgain: letters may have been lost, ask.
	LookAgain
)

// Mailbox receives the letters for all waiters of one Locker over one
// connection, which it opens for the first of them and closes when there have
// been none for a while.
type Mailbox struct {
	rdb   redis.UniversalClient
	id    string
	stray func(value, key string) // a turn for a waiter that is not here

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	boxes map[string]func(Letter) // by the waiter's value
	state *subscription           // nil: not open
}

// subscription is one reader's life.
type subscription struct {
	decided chan struct{} // closed when it listens or has failed to
	err     error
}

// NewMailbox returns a Mailbox that listens through rdb. Stray is called, in a
// goroutine of its own, with the value and the lock of a turn that nobody here
// waits for.
func NewMailbox(rdb redis.UniversalClient, stray func(value, key string)) *Mailbox {
	m := &Mailbox{rdb: rdb, id: newID(), stray: stray, boxes: make(map[string]func(Letter))}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

func newID() string {
	id := random()
	return string(id[:])
}

// Close ends the subscription. Waiters get no more letters.
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

// Open makes a box for value and waits until letters for it can arrive. Only
// then may the value be queued: a waiter that nobody listens for is taken for
// dead.
func (m *Mailbox) Open(ctx context.Context, value string) (<-chan Letter, error) {
	box := make(chan Letter, 4)
	return box, m.Listen(ctx, value, func(l Letter) { put(box, l) })
}

// Listen is Open for a waiter with boxes in several stores: letters are passed
// to f, which must not block and must not call the Mailbox.
func (m *Mailbox) Listen(ctx context.Context, value string, f func(Letter)) error {
	m.mu.Lock()
	m.boxes[value] = f
	if m.state == nil && m.ctx.Err() == nil {
		m.state = &subscription{decided: make(chan struct{})}
		m.done.Add(1)
		go m.read(m.state)
	}
	state := m.state
	m.mu.Unlock()
	if state == nil {
		m.Drop(value)
		return context.Canceled
	}
	select {
	case <-state.decided:
		if state.err == nil {
			return nil
		}
		m.Drop(value)
		return state.err
	case <-m.ctx.Done():
		m.Drop(value)
		return context.Canceled
	case <-ctx.Done():
		m.Drop(value)
		return context.Cause(ctx)
	}
}

// Listening reports whether letters can arrive, so that Open would not wait.
func (m *Mailbox) Listening() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state != nil && !m.state.undecided() && m.state.err == nil
}

// Drop removes the box for value.
func (m *Mailbox) Drop(value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.boxes, value)
}

// read listens until Close, or until nobody has been waiting for a while. What ends
// the listening before that, it begins again, and everybody is told to look.
func (m *Mailbox) read(state *subscription) {
	defer m.done.Done()
	for {
		err := m.listen(state)
		if m.over(state, err) {
			return
		}
		m.rest()
	}
}

func (m *Mailbox) rest() {
	select {
	case <-time.After(reopen):
	case <-m.ctx.Done():
	}
}

// over decides whether the reader stops, and if so makes room for another.
func (m *Mailbox) over(state *subscription, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case state.undecided():
		state.err = classify(err)
		close(state.decided)
	case len(m.boxes) > 0 && m.ctx.Err() == nil:
		return false
	}
	m.state = nil
	return true
}

func (s *subscription) undecided() bool {
	select {
	case <-s.decided:
		return false
	default:
		return true
	}
}

// listen receives letters until nobody waits, nothing is heard or Close is called.
// The client replaces a connection that breaks, and subscribes again, before it
// returns the error. To close that one as well would cost their places the waiters
// whose turn comes in between.
func (m *Mailbox) listen(state *subscription) error {
	sub := m.rdb.Subscribe(m.ctx, channel(m.id))
	defer sub.Close()
	stop := context.AfterFunc(m.ctx, func() { _ = sub.Close() })
	defer stop()
	silent := false
	for {
		msg, err := sub.ReceiveTimeout(m.ctx, pulse)
		switch {
		case broken(err) && !state.undecided() && !m.empty() && m.ctx.Err() == nil:
			m.rest()
			continue
		case err != nil && (silent || !timeout(err) || m.empty()):
			return err
		case err != nil:
			silent = true
			if err := sub.Ping(m.ctx); err != nil {
				return err
			}
			continue
		}
		silent = false
		m.handle(state, msg)
	}
}

func channel(id string) string { return reserved + "w:" + id }

func timeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func (m *Mailbox) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.boxes) == 0
}

func (m *Mailbox) handle(state *subscription, msg any) {
	switch msg := msg.(type) {
	case *redis.Subscription:
		m.listening(state)
	case *redis.Message:
		value, key, _ := strings.Cut(msg.Payload, " ")
		if value, ok := strings.CutPrefix(value, "!"); ok {
			m.deliver(value, StandBy)
		} else if !m.deliver(value, YourTurn) {
			go m.stray(value, key)
		}
	}
}

// listening is called when a connection has begun to listen. What was sent
// while there was none is lost, so everybody looks.
func (m *Mailbox) listening(state *subscription) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if state.undecided() {
		close(state.decided)
		return
	}
	for _, box := range m.boxes {
		box(LookAgain)
	}
}

func (m *Mailbox) deliver(value string, l Letter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	box, ok := m.boxes[value]
	if ok {
		box(l)
	}
	return ok
}

// put never blocks: a waiter with a full box looks at the store anyway.
func put(box chan Letter, l Letter) {
	select {
	case box <- l:
	default:
	}
}
