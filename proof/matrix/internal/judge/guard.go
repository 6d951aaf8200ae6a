package judge

import (
	"github.com/anishathalye/porcupine"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// marks are what a guard has seen: the greatest token that wrote, and the greatest number
// that read.
type marks struct{ written, read fencing.Token }

// guardModel is what a guard promises, as a sequential machine: it accepts a write if
// and only if it has seen no greater number before, and a read if it has seen no greater
// token of a writer.
var guardModel = porcupine.Model{
	Init: func() any { return marks{} },
	Step: func(state, input, output any) (bool, any) {
		seen, w, refused := state.(marks), input.(history.Write), output.(bool)
		switch {
		case w.Token < seen.written || !w.Shared && w.Token < seen.read:
			return refused, seen
		case w.Shared:
			return !refused, marks{seen.written, max(seen.read, w.Token)}
		}
		return !refused, marks{w.Token, seen.read}
	},
}

// linearizable reports whether the guard answered, for each name, as a sequential guard
// would. It does not depend on what the holders did.
func linearizable(h *history.History) bool {
	byName := make(map[string][]porcupine.Operation)
	clients := make(map[string]int)
	for _, op := range h.Ops {
		if _, ok := clients[op.Write.Worker]; !ok {
			clients[op.Write.Worker] = len(clients)
		}
		byName[op.Write.Name] = append(byName[op.Write.Name], porcupine.Operation{
			ClientId: clients[op.Write.Worker],
			Input:    op.Write, Call: int64(op.Called),
			Output: op.Write.Refused, Return: int64(op.Returned),
		})
	}
	for _, ops := range byName {
		if !porcupine.CheckOperations(guardModel, ops) {
			return false
		}
	}
	return true
}
