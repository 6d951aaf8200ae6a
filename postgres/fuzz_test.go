package postgres

import (
	"math"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
)

// Whatever row a database answers to a request for the lock is an error, or tokens from 1 on
// and a slot that there is, or a wait that is neither negative nor endless.
func FuzzAnswerToARequestForTheLock(f *testing.F) {
	for _, first := range []int64{-3, -2, -1, 0, 1, 1024, math.MaxInt64, math.MinInt64} {
		f.Add(int64(5), first, int64(0), int64(900), int64(1), int64(0))
		f.Add(int64(5), first, int64(3), int64(math.MaxInt64), int64(math.MaxInt64), int64(time.Second))
		f.Add(int64(5), first, int64(-1), int64(-900), int64(-1), int64(0))
	}
	f.Add(int64(5), int64(0), int64(0), int64(math.MaxInt64/1000), int64(1), int64(0))
	f.Fuzz(func(t *testing.T, ticket, first, slot, left, ahead, poll int64) {
		got := answered{ticket: ticket, first: first, slot: slot, left: left, ahead: ahead}
		for _, opts := range [][]locker.Option{nil, {locker.WithShared()}, {locker.WithSlots(3)}} {
			req, err := driver.NewRequest(nil, "x", opts...)
			if err != nil {
				t.Fatal(err)
			}
			grant, err := got.grant(req, 7)
			switch {
			case err != nil && grant.Count != 0, err == nil && (first < 0 || first > 0 != (grant.Count > 0)):
				t.Errorf("%+v: %+v, %v", got, grant, err)
			case err == nil && grant.Count > 0:
				last := grant.First + uint64(grant.Count) - 1
				if grant.First != uint64(first) || last > math.MaxInt64+tokens || grant.Count != req.Tokens(tokens) || grant.Slot < 0 || grant.Slot >= max(1, req.Slots) || grant.Since != 7 {
					t.Errorf("%+v: %+v for %v, %d slots", got, grant, req.Kind, req.Slots)
				}
			case err == nil:
				look := nextLook(left, ahead, time.Duration(max(0, poll)))
				if look < 0 || poll > 0 && look > time.Duration(poll) || poll <= 0 && ahead < 1000 && left < 1<<40 && look < time.Duration(ahead)*mailbox.ClaimTime {
					t.Errorf("%+v: look again after %v", got, look)
				}
			}
		}
	})
}

// Whatever rows a database answers about a name, no time is negative, and each holder is counted
// in the way that its row says.
func FuzzRowsAboutAName(f *testing.F) {
	f.Add(uint64(7), int64(900), 0, 0, true)
	f.Add(uint64(math.MaxUint64), int64(math.MaxInt64), -1, 9, true)
	f.Add(uint64(1), int64(-5), 3, 2, false)
	f.Fuzz(func(t *testing.T, number uint64, left int64, slots, slot int, held bool) {
		var info locker.Info
		note(&info, held, slots, locker.Holder{Text: "me", Number: locker.Number(number), Slot: slot, TimeLeft: mailbox.Left(left)})
		kind, n := kindOf(slots)
		switch {
		case info.Held != held || uint64(info.Token) != number || info.TimeLeft < 0:
			t.Errorf("%+v", info)
		case held && (info.Kind != kind || info.Slots != n || (len(info.Holders) == 1) != (kind != locker.KindExclusive) || (info.Holder == "me") != (kind == locker.KindExclusive)):
			t.Errorf("in %d slots: %+v", slots, info)
		}
		if back, want := bigints([]locker.Number{locker.Number(number)})[0], number; back < 0 || want <= math.MaxInt64 && uint64(back) != want {
			t.Errorf("token %d is asked for as %d", number, back)
		}
	})
}
