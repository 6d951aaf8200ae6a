package matrix

import (
	"cmp"
	"time"
)

// requests, replies and anything are what a network may hold back.
func requests(n Network) int {
	held, _ := n.Held()
	return held
}

func replies(n Network) int {
	_, held := n.Held()
	return held
}

func anything(n Network) int { return requests(n) + replies(n) }

// heldBack has something be sent over the worker's network, which holds it back,
// and makes sure that it does: send may have had nothing to say. If send returns
// where the answer would come, there must not be one yet.
func (w *Worker) heldBack(what string, of func(Network) int, send func() (answer <-chan report)) {
	answer := send()
	for end := time.Now().Add(w.play.TTL); ; w.play.Sleep(lookAgain) {
		held := of(w.Net) > 0
		select {
		case r := <-answer:
			w.play.miss("%s was not held back: it was answered (%s)", what, cmp.Or(r.Err, "it worked"))
		default:
		}
		switch {
		case held:
			return
		case time.Now().After(end):
			w.play.miss("%s was not held back: nothing was", what)
		}
	}
}

// lookAgain is how often heldBack looks.
const lookAgain = 2 * time.Millisecond

// late is for a lock that nobody else gets before what the worker sent is delivered:
// some stores free one only when its connection ends.
func (p *Play) late(what string) (mend func()) {
	return func() { p.miss("%s was not late: nobody else got the lock before it", what) }
}
