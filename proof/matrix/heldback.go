package matrix

import (
	"cmp"
	"time"

	"github.com/lockstile/locker/conformance"
)

// requests, replies and anything count the bytes that a network holds back.
func requests(n conformance.Network) int {
	bytes, _ := n.HeldBack()
	return bytes
}

func replies(n conformance.Network) int {
	_, bytes := n.HeldBack()
	return bytes
}

func anything(n conformance.Network) int { return requests(n) + replies(n) }

// heldBack calls send, which has something sent over the worker's network, and waits
// until the network holds it back. If the network holds nothing back, or send's answer
// comes, the scenario ends: it would show nothing.
func (w *worker) heldBack(what string, of func(conformance.Network) int, send func() (answer <-chan report)) {
	answer := send()
	for end := time.Now().Add(w.play.TTL); ; w.play.Sleep(lookAgain) {
		held := of(w.Net) > 0
		select {
		case r := <-answer:
			w.play.notPlayed("%s was not held back: it was answered (%s)", what, cmp.Or(r.Err, "it worked"))
		default:
		}
		switch {
		case held:
			return
		case time.Now().After(end):
			w.play.notPlayed("%s was not held back: nothing was", what)
		}
	}
}

// lookAgain is how often heldBack looks.
const lookAgain = 2 * time.Millisecond

// late is for a NextWithin before what the worker sent is delivered. If nobody else gets
// the lock first, nothing is late: some stores free a lock only when its connection ends.
func (p *play) late(what string) (mend func()) {
	return func() { p.notPlayed("%s was not late: nobody else got the lock before it", what) }
}
