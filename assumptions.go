package locker

import "strings"

// Assumptions is a set of things that a guarantee assumes. The empty set is
// the strongest claim: nothing in this list can break the guarantee.
type Assumptions uint16

const (
	// PromptHolder: the holder is not paused, nor its writes delayed, from
	// before the end of its validity until after it.
	PromptHolder Assumptions = 1 << iota
	// SteadyClocks: the clocks involved run at the same rate, up to the
	// drift allowed for, and do not jump. The clocks of a virtual machine that its
	// hypervisor pauses may stand still: then a holder in it believes for too long.
	SteadyClocks
	// AgreedClocks: the clocks of servers that may take each other's place show
	// the same time, up to the drift allowed for. It matters if a lease is
	// replicated as the time of its end: a successor whose clock is ahead ends
	// the lease early.
	AgreedClocks
	// DurableServer: what the server acknowledged survives its crash.
	DurableServer
	// DurableReplica: what the server acknowledged survives a failover.
	DurableReplica
	// DelayedRestart: a server that has lost its data grants nothing until
	// every lock that it granted before has expired.
	DelayedRestart
	// ForwardClock: the server's clock does not go back in the same failure in
	// which data is lost. Nor does it ever go back by more than the time for which
	// the store keeps the counter of a name that nobody uses. If another server
	// takes the server's place, its clock counts as the same clock.
	ForwardClock
	// ServerUp: the server is running and reachable, and when a connection to it ends, the holder notices
	// no later than the server.
	ServerUp
	// Unpromised: the guarantee is not given at all.
	Unpromised
)

var assumptionNames = [...]string{
	"prompt holder", "steady clocks", "agreed clocks", "durable server", "durable replica",
	"delayed restart", "forward clock", "server up", "not promised",
}

// Has reports whether all of b is in a.
func (a Assumptions) Has(b Assumptions) bool { return a&b == b }

// String lists the assumptions in words; the empty set is "nothing".
func (a Assumptions) String() string {
	var words []string
	for i, name := range assumptionNames {
		if a.Has(1 << i) {
			words = append(words, name)
		}
	}
	if words == nil {
		return "nothing"
	}
	return strings.Join(words, ", ")
}
