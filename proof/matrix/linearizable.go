package matrix

import (
	"context"

	"github.com/anishathalye/porcupine"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

var noContext = context.Background()

// writeOp is a write or a claim that a guard was asked about, with the times of the call
// and of its return.
type writeOp struct {
	write            Write
	called, returned locker.Instant
}

// marks are what a guard has seen: the greatest token that wrote, and the greatest number
// that read.
type marks struct{ written, read fencing.Token }

// guardModel is what a guard promises, as a sequential machine: it accepts a write if
// and only if it has seen no greater number before, and a read if it has seen no greater
// token of a writer.
var guardModel = porcupine.Model{
	Init: func() any { return marks{} },
	Step: func(state, input, output any) (bool, any) {
		seen, w, refused := state.(marks), input.(Write), output.(bool)
		switch {
		case w.Token < seen.written || !w.Shared && w.Token < seen.read:
			return refused, seen
		case w.Shared:
			return !refused, marks{seen.written, max(seen.read, w.Token)}
		}
		return !refused, marks{w.Token, seen.read}
	},
}

// Linearizable reports whether the guard answered, for each name, as a sequential guard
// would. It does not depend on what the holders did.
func (h *History) Linearizable() bool {
	byName := make(map[string][]porcupine.Operation)
	clients := make(map[string]int)
	for _, op := range h.ops {
		if _, ok := clients[op.write.Worker]; !ok {
			clients[op.write.Worker] = len(clients)
		}
		byName[op.write.Name] = append(byName[op.write.Name], porcupine.Operation{
			ClientId: clients[op.write.Worker],
			Input:    op.write, Call: int64(op.called),
			Output: op.write.Refused, Return: int64(op.returned),
		})
	}
	for _, ops := range byName {
		if !porcupine.CheckOperations(guardModel, ops) {
			return false
		}
	}
	return true
}
