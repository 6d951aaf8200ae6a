package judge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// lockOp is a call on a lock, as a checker of linearizability sees it: an acquire that was
// granted, or a release. What ends a lock otherwise, such as a loss, is a release that began
// when the holder ceased to believe and never returned. An attempt of unknown outcome would
// be an acquire that never returned. It may take effect after everything else, so it excludes
// nothing, and is left out; so is an attempt that was refused.
type lockOp struct {
	release bool
	shared  bool
	lease   string // readers of one process may share a lease, and its number
	token   fencing.Token
	turn    int // see turns
}

// lockState is a lock as a sequential machine: who holds it, and the last token that it gave.
type lockState struct {
	last    fencing.Token
	read    bool // it was a reader's
	writer  string
	readers string // their leases, sorted, one for each reader
	turns   int    // how many acquires with a turn there were
}

// lockModel is a mutex with fencing tokens, as Jepsen's suite for Hazelcast models it
// (FencedMutex in hazelcast.clj), with readers that share it. A slot is a mutex of its own.
// What a fault excuses is left out: exclusion, or the order of tokens.
func lockModel(exclusion, tokens bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(lockState), input.(lockOp)
			if op.release {
				return s.release(op, exclusion)
			}
			joins := op.shared && slices.Contains(s.reading(), op.lease)
			switch {
			case exclusion && (s.writer != "" || !op.shared && s.readers != ""):
				return false, s
			case tokens && !joins && !s.precedes(op):
				return false, s
			}
			return true, s.acquire(op)
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

func (s lockState) reading() []string { return strings.Fields(s.readers) }

// precedes reports whether an acquire may have that token now. A stranger who comes first has none.
// A reader may have the number of one who has left: see leftBefore.
func (s lockState) precedes(op lockOp) bool {
	has := func(lease string) bool { return strings.HasSuffix(lease, fmt.Sprint("/", op.token)) }
	again := op.token == s.last && op.shared && s.read && !slices.ContainsFunc(s.reading(), has)
	return s.turns+1 >= op.turn && (op.token > s.last || s.last == 0 || again)
}

func (s lockState) acquire(op lockOp) lockState {
	if op.turn > 0 {
		s.turns++
	}
	if op.token >= s.last {
		s.last, s.read = op.token, op.shared
	}
	if op.shared {
		s.readers = strings.Join(slices.Sorted(slices.Values(append(s.reading(), op.lease))), " ")
		return s
	}
	s.writer = op.lease
	return s
}

// release reports whether that lease can end now. Where exclusion is excused somebody else may
// have taken the writer's place, and there is nothing left to end.
func (s lockState) release(op lockOp, exclusion bool) (bool, any) {
	if !op.shared {
		if s.writer != op.lease {
			return !exclusion, s
		}
		s.writer = ""
		return true, s
	}
	all := s.reading()
	i := slices.Index(all, op.lease)
	if i < 0 {
		return false, s
	}
	s.readers = strings.Join(slices.Delete(all, i, i+1), " ")
	return true, s
}

// lockOps returns the calls on each lock, or slot.
func lockOps(h *history.History) map[string][]porcupine.Operation {
	ops := make(map[string][]porcupine.Operation)
	for _, s := range h.Counting() {
		op := lockOp{shared: s.Shared, lease: fmt.Sprint(s.Worker, "/", s.ID), token: s.Token}
		if s.Shared {
			op.lease = fmt.Sprint(s.Worker, "/", s.Token)
		}
		ends := op
		ends.release = true
		ops[s.Name] = append(ops[s.Name],
			porcupine.Operation{Input: op, Call: int64(s.Asked), Return: int64(s.From)},
			porcupine.Operation{Input: ends, Call: int64(believedUntil(h, s)), Return: math.MaxInt64})
	}
	return ops
}

// believedUntil is when a holder ceased to believe, less the slack. A stopped process believes nothing.
// Nobody believed in a lock that was over when its answer came: it may have ended right after its grant.
func believedUntil(h *history.History, s history.Span) driver.Instant {
	if over(s) {
		return s.Asked
	}
	at := h.EndOf(s).Add(-Slack)
	for _, p := range h.Pauses {
		if p.Worker == s.Worker && !p.Midway && p.From < at && (p.Until == 0 || at <= p.Until || idle(h, s, p.Until)) {
			at = p.From
		}
	}
	return max(s.From, at)
}

// idle reports whether a holder that was lost has done nothing with its lock since it was woken. The time
// for which it may have believed is for overlap to judge.
func idle(h *history.History, s history.Span, since driver.Instant) bool {
	return !s.Unlocked && s.Claimed <= since && !slices.ContainsFunc(h.Writes, func(w history.Write) bool { return s.Wrote(w) && w.At > since })
}

// checkTime bounds the check of one lock. A history of a few thousand calls takes milliseconds.
const checkTime = 20 * time.Second

// unlawful returns the name of a lock of which no order of the calls is one that a lock with
// tokens allows. It is a second judge: overlap and disorder look at pairs of holders.
func unlawful(h *history.History, exclusion, tokens bool) (name string, result porcupine.CheckResult) {
	all := lockOps(h)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		turns(all[name])
		result := porcupine.CheckOperationsTimeout(lockModel(exclusion, tokens && !h.Tokenless), all[name], checkTime)
		if result != porcupine.Ok {
			return name, result
		}
	}
	return "", porcupine.Ok
}

// turns says of each acquire how many must come before it, because their tokens are smaller. The
// checker would find that out by itself, but for n calls that wait at once it would look at 2^n
// orders. A lease that a reader may have joined has no turn: to join, its token may be smaller.
func turns(ops []porcupine.Operation) {
	calls := make(map[string]int)
	for _, op := range ops {
		calls[op.Input.(lockOp).lease]++
	}
	alone := func(op lockOp) bool { return !op.release && calls[op.lease] == 2 }
	var tokens []fencing.Token
	for _, op := range ops {
		if op := op.Input.(lockOp); alone(op) {
			tokens = append(tokens, op.token)
		}
	}
	slices.Sort(tokens)
	for i := range ops {
		if op := ops[i].Input.(lockOp); alone(op) {
			smaller, _ := slices.BinarySearch(tokens, op.token)
			op.turn = smaller + 1
			ops[i].Input = op
		}
	}
}
