package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// attempts speaks for many processes, with the statements themselves.
type attempts struct {
	ask  func(value string, slots int, queue bool) (token int64, slot int)
	free func(value string, queued bool)
	list func() string // values that have the lock, or for which it is reserved ("?")
}

func byHand(t *testing.T, url string) attempts {
	t.Helper()
	newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	return attempts{
		func(value string, slots int, queue bool) (token int64, slot int) {
			t.Helper()
			if err := admin.QueryRow(soon(t), `SELECT _token, _slot FROM lockstile_acquire_5('a', $1, 600000, '', $2, '', 600000, -1, false, $3)`,
				value, queue, slots).Scan(&token, &slot); err != nil {
				t.Fatal(err)
			}
			return token, slot
		},
		func(value string, queued bool) {
			t.Helper()
			exec(t, admin, `SELECT lockstile_release_5('a', $1, $2, 0, 0)`, value, queued)
		},
		func() string {
			t.Helper()
			return query[string](t, admin, `SELECT coalesce(string_agg(value || CASE WHEN reserved THEN '?' ELSE '' END, ' ' ORDER BY value), '') FROM lockstile_lease`)
		},
	}
}

func (a attempts) want(t *testing.T, after, want string) {
	t.Helper()
	if got := a.list(); got != want {
		t.Errorf("after %s: %q, want %q", after, got, want)
	}
}

// Goal: readers that are neighbours in the queue go in together, and no further than the
// next writer, whatever it was that kept them waiting. Method: steps by hand, again where one that is
// reserved the lock was not asked for before the reservation ended.
func TestReadersUpToTheNextWriterGoInTogether(t *testing.T) {
	for _, how := range []string{"release", "withdrawal"} {
		t.Run(how, func(t *testing.T) {
			for range 20 {
				wrong, inTime := neighboursGoIn(t, how)
				if inTime {
					for _, w := range wrong {
						t.Error(w)
					}
					return
				}
				t.Logf("played again: a reservation had ended (%q)", wrong)
			}
			t.Error("each time a reservation had ended before it was used")
		})
	}
}

func neighboursGoIn(t *testing.T, how string) (wrong []string, inTime bool) {
	t.Helper()
	a, inTime := byHand(t, database(t)), true
	want := func(after, want string) {
		if got := a.list(); got != want {
			wrong = append(wrong, fmt.Sprintf("after %s: %q, want %q", after, got, want))
		}
	}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	// claimed runs steps of which the first reserves the lock, and the last is asked for it.
	claimed := func(steps func()) {
		begun := time.Now()
		steps()
		inTime = inTime && time.Since(begun) < mailbox.ClaimTime
	}
	a.ask("0", map[string]int{"release": 0, "withdrawal": -1}[how], false)
	if how == "withdrawal" { // a writer that waits for a reader
		a.ask("w", 0, true)
	}
	for _, w := range []struct {
		value string
		slots int
	}{{"1", -1}, {"2", -1}, {"3", 0}, {"4", -1}} {
		token, _ := a.ask(w.value, w.slots, true)
		check(token == 0, "%s was answered %d", w.value, token)
	}
	var one, two int64
	claimed(func() {
		if how == "withdrawal" {
			a.free("w", true)
			want("the writer left", "0 1? 2?")
		}
		a.free("0", false)
		want("the first release", "1? 2?")
		one, _ = a.ask("1", -1, true)
		two, _ = a.ask("2", -1, true)
	})
	check(one > 0 && two > one, "the readers have numbers %d and %d", one, two)
	a.free("1", false)
	want("a reader's release", "2")
	claimed(func() {
		a.free("2", false)
		want("the last reader's release", "3?")
		three, _ := a.ask("3", 0, true)
		check(three > two, "the writer behind number %d has token %d", two, three)
	})
	claimed(func() {
		a.free("3", false)
		want("the writer's release", "4?")
	})
	return wrong, inTime
}

// Goal: nobody has more than what there is, of several kinds at once. Method: requests, the
// same request sent again, and what does not go with it.
func TestEachKindLeavesRoomForWhatGoesWithItAlone(t *testing.T) {
	url := database(t)
	a, admin := byHand(t, url), connect(t, url)
	const taken, mismatch = 0, -2
	ask := func(value string, slots int, want int64, wantSlot int) (token int64) {
		t.Helper()
		token, slot := a.ask(value, slots, false)
		if want == 1 && token <= 0 || want != 1 && token != want || want != taken && slot != wantSlot {
			t.Errorf("%s, who asks for %d, was answered %d and slot %d", value, slots, token, slot)
		}
		return token
	}
	first := ask("slot 0", 2, 1, 0)
	if second, again := ask("slot 1", 2, 1, 1), ask("slot 1", 2, 1, 1); again != second {
		t.Errorf("token %d became %d when it was asked for again", second, again)
	}
	ask("none", 2, taken, 0)
	ask("another n", 3, mismatch, 2)
	ask("reader", -1, mismatch, 2)
	ask("writer", 0, mismatch, 2)
	a.free("slot 0", false)
	if again := ask("again 0", 2, 1, 0); again <= first {
		t.Errorf("slot 0 has token %d after %d", again, first)
	}
	a.free("slot 1", false)
	a.free("again 0", false)
	ask("reader 1", -1, 1, 0)
	first = ask("reader 2", -1, 1, 0)
	exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp() + interval '60 s'`)
	if again := ask("reader 2", -1, 1, 0); again != first {
		t.Errorf("number %d became %d when it was asked for again", first, again)
	}
	if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_lease WHERE expires > clock_timestamp() + interval '100 s'`); n != 1 {
		t.Errorf("a request that was sent again began %d leases anew", n)
	}
	ask("slot", 1, mismatch, -1)
	ask("writer", 0, taken, 0)
	a.free("reader 1", false)
	ask("writer", 0, taken, 0)
	a.free("reader 2", false)
	ask("writer", 0, 1, 0)
	ask("reader", -1, taken, 0)
	ask("slot", 1, mismatch, 0)
	a.want(t, "all", "writer")
}

// Goal: what has ended is not in the way, and what has not is, however long either lasts.
// Method: of two holders one has ended, and the other has not.
func TestHolderThatEndedIsNotInTheWay(t *testing.T) {
	url := database(t)
	a, admin := byHand(t, url), connect(t, url)
	end := func(value string) {
		t.Helper()
		exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp() WHERE value = $1`, value)
	}
	a.ask("dead", 2, false)
	a.ask("slot 1", 2, false)
	end("dead")
	if token, _ := a.ask("another n", 3, false); token != -2 {
		t.Errorf("beside a slot that is held, another n was answered %d", token)
	}
	if token, slot := a.ask("slot 0", 2, false); token <= 0 || slot != 0 {
		t.Errorf("for the slot of a dead holder the answer was %d, slot %d", token, slot)
	}
	a.want(t, "a dead holder's slot was granted", "slot 0 slot 1")
	end("slot 0")
	end("slot 1")
	a.ask("reader", -1, false)
	a.want(t, "the holders of all slots died", "reader")
	a.ask("dead", -1, false)
	a.ask("writer", 0, true)
	end("dead")
	a.free("reader", false)
	a.want(t, "the last reader that lives has left", "writer?")
}

// Goal: whoever looks, the dead in front are no hindrance. Method: a dead writer is in front
// of a waiting reader while another reads, and a newcomer asks.
func TestDeadWriterInFrontLetsReadersGoOnWhileOthersRead(t *testing.T) {
	url := database(t)
	a, admin := byHand(t, url), connect(t, url)
	a.ask("reads", -1, false)
	a.ask("dead", 0, true)
	a.ask("waits", -1, true)
	if token, _ := a.ask("newcomer", -1, false); token != 0 {
		t.Errorf("a reader that came while a writer waits was answered %d", token)
	}
	a.want(t, "nothing", "reads")
	exec(t, admin, `UPDATE lockstile_queue SET patient = clock_timestamp() WHERE value = 'dead'`)
	if token, _ := a.ask("newcomer", -1, false); token <= 0 {
		t.Errorf("a reader behind nobody who lives was answered %d", token)
	}
	a.want(t, "the writer's death", "newcomer reads waits?")
}

// Goal: a waiter that asks is alive, whether or not words reach it, and a newcomer that can
// do nothing tells nobody. Method: the statements, with a channel on which nobody listens,
// and one on which the test does.
func TestWaiterThatAsksIsAliveAndIsToldNothingInVain(t *testing.T) {
	url := database(t)
	a, admin := byHand(t, url), connect(t, url)
	wait := func(value, channel string, slots int) int64 {
		t.Helper()
		return query[int64](t, admin, `SELECT (lockstile_acquire_5('a', $1, 600000, '', true, $2, 600000, -1, false, $3))._token`, value, channel, slots)
	}
	a.ask("holds", 0, false)
	wait("first", "gone", 0)
	a.ask("second", 0, true)
	exec(t, admin, `DELETE FROM lockstile_lease`)
	if token := wait("first", "gone", 0); token <= 0 {
		t.Errorf("the first waiter, which asks, was answered %d", token)
	}
	for _, value := range []string{"first", "second"} {
		a.free(value, true)
	}
	a.ask("reads", -1, false)
	listens, err := admin.Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer listens.Release()
	if _, err := listens.Exec(soon(t), `LISTEN words; SELECT pg_advisory_lock(1819239276, hashtext('words'))`); err != nil {
		t.Fatal(err)
	}
	wait("writer", "words", 0)
	if token, _ := a.ask("newcomer", -1, false); token != 0 {
		t.Errorf("a reader that came while a writer waits was answered %d", token)
	}
	exec(t, admin, `SELECT pg_notify('words', 'the last')`)
	if n, err := listens.Conn().WaitForNotification(soon(t)); err != nil || n.Payload != "the last" {
		t.Errorf("it was told %+v, %v", n, err)
	}
}

// Goal: a waiter looks when it may be its turn though nobody tells it. Method: the time that
// the server says, with holders of unequal leases.
func TestWaiterLooksWhenTheFirstOfSeveralLeasesEnds(t *testing.T) {
	url := database(t)
	a, admin := byHand(t, url), connect(t, url)
	looks := func(value string, slots int) (left, ahead int64) {
		t.Helper()
		if err := admin.QueryRow(soon(t), `SELECT _left, _ahead FROM lockstile_acquire_5('a', $1, 600000, '', true, '', 600000, -1, false, $2)`,
			value, slots).Scan(&left, &ahead); err != nil {
			t.Fatal(err)
		}
		return left, ahead
	}
	a.ask("long", 2, false)
	a.ask("short", 2, false)
	exec(t, admin, `UPDATE lockstile_lease SET expires = expires - interval '300 s' WHERE value = 'short'`)
	if left, _ := looks("waits", 2); left > 300_000 || left < 100_000 {
		t.Errorf("a waiter for a slot looks in %d ms, with leases of 300 s and 600 s", left)
	}
	for _, value := range []string{"waits", "long", "short"} {
		a.free(value, true)
	}
	a.ask("reads", -1, false)
	a.ask("dead", -1, false)
	exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp() WHERE value = 'dead'`)
	exec(t, admin, `INSERT INTO lockstile_queue VALUES ('another', 1, 'x', '', now() + interval '1 hour')`)
	if left, _ := looks("writer", 0); left > 5000 || left < 1000 {
		t.Errorf("a writer behind a reader looks in %d ms, and is dead 10 s after it should have looked", left)
	}
	for range 2 {
		if left, ahead := looks("reader", -1); left != 0 || ahead != 1 {
			t.Errorf("a reader behind a writer that may be dead looks in %d ms, and %d are before it", left, ahead)
		}
	}
	query[int64](t, admin, `SELECT (lockstile_acquire_5('a', 'writer', 600000, '', true, 'a channel', 600000, -1, false, 0))._token`)
	left := query[time.Duration](t, admin, `SELECT (extract(epoch FROM patient - clock_timestamp()) * 1e9)::bigint FROM lockstile_queue WHERE value = 'writer'`)
	if left > 20*time.Second {
		t.Errorf("a writer keeps readers out for %v after its death", left)
	}
}

// Goal: what all Lockers do with the kinds, a pooler does not disturb, however it shares
// connections.
func TestSharedLocksAndSlotsWorkThroughPgBouncer(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a pooler")
	}
	s := shared(t)
	url := testserver.PgBouncer(t, s, "transaction").URL(newDatabase(t, s, ""))
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	for _, kind := range []locker.Option{locker.WithShared(), locker.WithSlots(2)} {
		held := []*locker.Lock{lock(t, a, "a", kind, locker.WithTTL(long)), lock(t, b, "a", kind, locker.WithTTL(long))}
		writer := waits(t, b, "a")
		if held[0].Slot() >= 0 {
			if err := <-writer; !errors.Is(err, locker.ErrMismatch) {
				t.Errorf("Lock of a name that has slots: %v", err)
			}
			if _, err := a.TryLock(soon(t), "a", kind); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("TryLock without a free slot: %v", err)
			}
		}
		for _, l := range held {
			if err := l.Renew(soon(t)); err != nil {
				t.Errorf("Renew: %v", err)
			}
			unlock(t, l)
		}
		if held[0].Slot() < 0 {
			if err := <-writer; err != nil {
				t.Errorf("a writer behind readers: %v", err)
			}
		}
	}
}

// Goal: one holder is broken whose number is given, and all by Break. What nobody can have breaks
// nobody.
func TestBreakSparesWhoseTokenIsNotGiven(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		a, b := open(t, url), open(t, url)
		first, second := lock(t, a, "a", locker.WithShared(), locker.WithTTL(long)), lock(t, b, "a", locker.WithShared(), locker.WithTTL(long))
		for _, nobody := range []locker.Number{locker.Number(second.SharedToken()) + 1024, 1<<64 - 1} {
			if broken, err := a.BreakHolder(soon(t), "a", nobody); broken || err != nil {
				t.Errorf("Break of %d: %v, %v", nobody, broken, err)
			}
		}
		if broken, err := a.BreakHolder(soon(t), "a", locker.Number(second.SharedToken())); !broken || err != nil {
			t.Errorf("Break of the second: %v, %v", broken, err)
		}
		if err := first.Renew(soon(t)); err != nil {
			t.Errorf("the first: %v", err)
		}
		if err := second.Renew(soon(t)); !errors.Is(err, locker.ErrLost) {
			t.Errorf("the second: %v", err)
		}
		if broken, err := b.Break(soon(t), "a"); !broken || err != nil {
			t.Errorf("Break of all: %v, %v", broken, err)
		}
		if err := first.Renew(soon(t)); !errors.Is(err, locker.ErrLost) {
			t.Errorf("the first, when all were broken: %v", err)
		}
	})
}

// Goal: List shows a name once, with all who have it.
func TestListShowsAllHoldersOfAName(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		a, b := open(t, url), open(t, url)
		var held []*locker.Lock
		for i, l := range []lockerUnderTest{a, b, a} {
			ttl := long / time.Duration(i+1) // the first ends last
			held = append(held, lock(t, l, "it's b", locker.WithShared(), locker.WithTTL(ttl), locker.WithHolder(fmt.Sprint(i))))
		}
		held = append(held, lock(t, a, "it's c", locker.WithTTL(long)))
		infos, err := b.(locker.Lister).List(soon(t), "it's")
		if err != nil || len(infos) != 2 {
			t.Fatalf("List: %+v, %v", infos, err)
		}
		got := ""
		inspected, err := b.Inspect(soon(t), "it's b")
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range infos[0].Holders {
			if got += h.Text; len(inspected.Holders) != len(held)-1 || inspected.Holders[i].Text != h.Text {
				t.Errorf("Inspect shows %+v, and List %+v", inspected.Holders, infos[0].Holders)
			}
		}
		if infos[0].Name != "it's b" || infos[0].Kind != locker.KindShared || got != "012" || uint64(infos[0].Token) != uint64(held[2].SharedToken()) {
			t.Errorf("%+v", infos[0])
		}
		if left := infos[0].TimeLeft; left <= long/2 || left > long {
			t.Errorf("the last of the holders ends in %v", left)
		}
		if infos[1].Kind != locker.KindExclusive || infos[1].Token != held[3].Token() || len(infos[1].Holders) != 1 {
			t.Errorf("%+v", infos[1])
		}
		eventually(t, func() string {
			if info, err := b.Inspect(soon(t), "it's c"); err != nil || info.TimeLeft == 0 || info.TimeLeft >= long {
				return fmt.Sprintf("what is left does not become less: %v, %v", info.TimeLeft, err)
			}
			return ""
		})
		for _, l := range held {
			unlock(t, l)
		}
	})
}

// Goal: holders are shown in the order of their numbers, and names in theirs, whatever the order
// in which the database has them.
func TestLeasesAreShownInTheOrderOfNamesAndNumbers(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	exec(t, connect(t, url), `INSERT INTO lockstile_lease SELECT to_char(i / 3, 'FM00'), to_char(100 - i, 'FM000'), false, i, '', now() + interval '1 hour', -1
		FROM generate_series(29, 0, -1) i`)
	infos, err := l.List(soon(t), "")
	if err != nil || len(infos) != 10 {
		t.Fatalf("%d names, %v", len(infos), err)
	}
	for n, listed := range infos {
		inspected, err := l.Inspect(soon(t), fmt.Sprintf("%02d", n))
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range []locker.Info{listed, inspected} {
			got := ""
			for _, h := range info.Holders {
				got += fmt.Sprint(" ", h.Number)
			}
			if want := fmt.Sprintf(" %d %d %d", 3*n, 3*n+1, 3*n+2); info.Name != fmt.Sprintf("%02d", n) || got != want {
				t.Errorf("name %d is shown as %q with the numbers%s, want%s", n, info.Name, got, want)
			}
		}
	}
}

// A database whose function answers with no row, as another program's of the same name may, made
// Inspect panic.
func TestAnswerWithoutARowIsAnError(t *testing.T) {
	t.Parallel()
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	exec(t, connect(t, url), `CREATE OR REPLACE FUNCTION lockstile_inspect_5(_name text) RETURNS TABLE (name text, held boolean, holder text,
		token bigint, time_left bigint, waiters bigint, slots integer, slot integer) LANGUAGE sql STABLE AS
		$$ SELECT '', false, '', 0::bigint, 0::bigint, 0::bigint, 0, 0 WHERE false $$`)
	if info, err := l.Inspect(soon(t), "a"); err == nil {
		t.Errorf("%+v", info)
	}
}
