package lockertest

import "testing"

// Whoever a message reaches may break the network while the rest is being delivered.
func TestACutThatComesDuringADeliveryLasts(t *testing.T) {
	n, passed := NewLink(), false
	send := func(carry func()) { n.pass(&message{n.conns[len(n.conns)-1], carry, true, func() {}}) }
	n.Cut()
	send(n.Cut)
	n.Deliver()
	send(func() { passed = true })
	if passed {
		t.Error("a message passed after the Cut")
	}
}
