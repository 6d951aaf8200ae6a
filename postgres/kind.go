package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/mailbox"
)

// slotsOf says in one number, as the schema does, in which way a lock is wanted: how many
// may have it at once, 0 for an exclusive lock and -1 for a shared one.
func slotsOf(req *driver.Request) int {
	if req.Kind == locker.KindShared {
		return -1
	}
	return req.Slots
}

// kindOf is the reverse of slotsOf.
func kindOf(slots int) (locker.Kind, int) {
	switch {
	case slots < 0:
		return locker.KindShared, 0
	case slots > 0:
		return locker.KindSlots, slots
	}
	return locker.KindExclusive, 0
}

// grantOf is what the server has granted: all tokens of the draw, or the first alone.
func grantOf(req *driver.Request, first int64, slot int, since driver.Instant) driver.Grant {
	return driver.Grant{First: uint64(first), Count: req.Tokens(tokens), Slot: slot, Since: since}
}

// look sends a statement that returns a row for each holder, in the order of names and
// tokens: the name, whether it is held, the holder's text, the token, the time left in
// milliseconds, how many wait, how many may hold it as slotsOf says it, the slot, which is -1 of an exclusive lock
// that nobody has any more ([locker.Info].Kept). A name
// without a holder may have rows as well.
func (p *poolRunner) look(ctx context.Context, sql, arg string) (infos []locker.Info, err error) {
	_, err = p.repeat(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		infos = nil
		rows, err := conn.Query(ctx, sql, p.mode, arg)
		if err != nil {
			return err
		}
		var name string
		var held bool
		var h locker.Holder
		var left int64
		var waiters, slots int
		_, err = pgx.ForEachRow(rows, []any{&name, &held, &h.Text, &h.Number, &left, &waiters, &slots, &h.Slot}, func() error {
			h.TimeLeft = mailbox.Left(left)
			if n := len(infos); n == 0 || infos[n-1].Name != name {
				infos = append(infos, locker.Info{Name: name, Waiters: waiters})
			}
			note(&infos[len(infos)-1], held, slots, h)
			return nil
		})
		return err
	})
	return infos, err
}

// lookAt is look at one name, of which there is a row in any case.
func (p *poolRunner) lookAt(ctx context.Context, sql, name string) (locker.Info, error) {
	infos, err := p.look(ctx, sql, name)
	switch {
	case err != nil:
		return locker.Info{}, err
	case len(infos) != 1:
		return locker.Info{}, fmt.Errorf("the database answered with %d names, and was asked for one: is its schema complete?", len(infos))
	}
	return infos[0], nil
}

// note adds a row to what is known of a name.
func note(info *locker.Info, held bool, slots int, h locker.Holder) {
	info.Token = max(info.Token, fencing.Token(h.Number))
	if !held {
		return
	}
	info.Held, info.TimeLeft = true, max(info.TimeLeft, h.TimeLeft)
	switch info.Kind, info.Slots = kindOf(slots); info.Kind {
	case locker.KindExclusive:
		info.Holder, info.Kept = h.Text, h.Slot < 0
		return
	case locker.KindShared:
		h.Slot = -1
	}
	info.Holders = append(info.Holders, h)
}

// bigints is how the server compares tokens. What it cannot have given out stays that.
func bigints(numbers []locker.Number) []int64 {
	all := make([]int64, len(numbers))
	for i, n := range numbers {
		all[i] = int64(min(n, math.MaxInt64))
	}
	return all
}
