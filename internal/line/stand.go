package line

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstile/locker"
)

// Stand gets the turn for a call of Lock: at once if nobody has it, and else as
// [Lines.Enter] does. It also ends with closing, which is the life of the Locker.
// Its errors are those that Lock returns: [locker.ErrClosed], or [locker.ErrTaken]
// with the cause of the end of ctx. After an error the store knows nothing of the
// call.
func (s *Lines[A]) Stand(ctx, closing context.Context, name string, ask A) (*Turn[A], error) {
	if turn, ok := s.TryEnter(name, ask); ok {
		return turn, nil // spares the contexts
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(closing, func() { cancel(locker.ErrClosed) })
	defer stop()
	turn, err := s.Enter(ctx, name, ask)
	if err != nil && !errors.Is(err, locker.ErrClosed) {
		err = fmt.Errorf("%w: %w", locker.ErrTaken, err)
	}
	return turn, err
}
