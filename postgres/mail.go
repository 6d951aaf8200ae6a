package postgres

import (
	"strings"
	"sync"
)

// letter tells a waiter to do something.
type letter uint8

const (
	// yourTurn: the lock is reserved for you, ask for it.
	yourTurn letter = iota + 1
	// standBy: it is reserved for the waiter before you; ask when the claim
	// time is over.
	standBy
	// lookAgain: letters may have been lost, ask.
	lookAgain
)

// mailbox hands the letters that arrive on one connection to the waiters of one
// Locker.
type mailbox struct {
	stray func(value, name string) // a turn for a waiter that is not here

	mu    sync.Mutex
	boxes map[string]chan letter // by the waiter's value
}

func newMailbox(stray func(value, name string)) *mailbox {
	return &mailbox{stray: stray, boxes: make(map[string]chan letter)}
}

// open makes a box for value.
func (m *mailbox) open(value string) <-chan letter {
	box := make(chan letter, 4)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boxes[value] = box
	return box
}

// drop removes the box for value.
func (m *mailbox) drop(value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.boxes, value)
}

func (m *mailbox) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.boxes) == 0
}

// arrived delivers a notification: a word, the waiter's value and the name of
// the lock.
func (m *mailbox) arrived(payload string) {
	word, rest, _ := strings.Cut(payload, " ")
	value, name, _ := strings.Cut(rest, " ")
	switch {
	case word == "wait":
		m.deliver(value, standBy)
	case word == "turn" && !m.deliver(value, yourTurn):
		m.stray(value, name)
	}
}

func (m *mailbox) deliver(value string, l letter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	box, ok := m.boxes[value]
	if ok {
		put(box, l)
	}
	return ok
}

// wakeAll has everybody look.
func (m *mailbox) wakeAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, box := range m.boxes {
		put(box, lookAgain)
	}
}

// put never blocks: a waiter with a full box looks at the store anyway.
func put(box chan letter, l letter) {
	select {
	case box <- l:
	default:
	}
}
