package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/postgres"
)

// Goal: a lease lasts for its TTL, and no longer, however it began. The holder's allowance for the
// store is 2 ms: what a function takes from it, no test with a network can see.
// Method: in one statement with what begins the lease, the clock is read before, so a
// lease that is short ends before the reading and the TTL, and one that is not never
// does.
func TestLeasesLastForTheirWholeTTL(t *testing.T) {
	t.Parallel()
	admin := emptySchema(t)
	const held = `PERFORM lockstile_acquire_5('a', 'other', 60000, '', false, '', 0, 0, false);`
	const waits = held + `PERFORM lockstile_acquire_5('a', 'mine', 30000, '', true, '', 60000, 0, false);`
	for how, steps := range map[string]struct{ before, begin string }{
		"free":        {"", acquireMine},
		"shared":      {"", `PERFORM lockstile_acquire_5('a', 'mine', 30000, '', false, '', 0, 0, false, -1);`},
		"expired":     {held + `UPDATE lockstile_lease SET expires = clock_timestamp();`, acquireMine},
		"reserved":    {waits + `PERFORM lockstile_release_5('a', 'other', false, 0, 0);`, acquireMine},
		"left behind": {waits + `DELETE FROM lockstile_lease;`, acquireMine},
		"asked for again": {acquireMine + `UPDATE lockstile_lease SET expires = clock_timestamp() + interval '1 second';`,
			acquireMine},
		"handed over": {held, `PERFORM lockstile_resume_5('a', 'mine', 30000, '', ARRAY['other'], 60000, false);`},
		"renewed": {acquireMine + `UPDATE lockstile_lease SET expires = clock_timestamp() + interval '1 second';`,
			`PERFORM lockstile_renew_5(ARRAY['a'], ARRAY['mine'], ARRAY[30000], false);`},
	} {
		repeatedly(t, admin, "a lease that was "+how, `
DECLARE _before timestamptz; _lasts interval;
BEGIN
  `+steps.before+`
  _before := clock_timestamp();
  `+steps.begin+`
  SELECT l.expires - _before INTO _lasts FROM lockstile_lease l WHERE l.name = 'a' AND l.value = 'mine' AND NOT l.reserved;
  IF _lasts IS NULL OR _lasts < interval '30 seconds' OR _lasts > interval '30 seconds' + (clock_timestamp() - _before) THEN
    RAISE EXCEPTION 'of 30 s, it lasts for %', _lasts;
  END IF;`)
	}
}

// Goal: a free lock is reserved for a waiter for as long as that has to claim it, and for no
// longer: a dead one holds the others up for so long.
func TestLockIsReservedForTheTimeToClaimIt(t *testing.T) {
	t.Parallel()
	repeatedly(t, emptySchema(t), "a reservation", `
DECLARE _before timestamptz; _lasts interval;
BEGIN
  PERFORM lockstile_acquire_5('a', 'other', 60000, '', false, '', 0, 0, false);
  PERFORM lockstile_acquire_5('a', 'mine', 30000, '', true, '', 60000, 0, false);
  _before := clock_timestamp();
  PERFORM lockstile_release_5('a', 'other', false, 0, 0);
  SELECT l.expires - _before INTO _lasts FROM lockstile_lease l WHERE l.value = 'mine' AND l.reserved;
  IF _lasts IS NULL OR _lasts < '`+mailbox.ClaimTime.String()+`' OR _lasts > '`+mailbox.ClaimTime.String()+`' + (clock_timestamp() - _before) THEN
    RAISE EXCEPTION 'it lasts for %', _lasts;
  END IF;`)
}

const acquireMine = `PERFORM lockstile_acquire_5('a', 'mine', 30000, '', false, '', 0, 0, false);`

// Goal: a lease is its holder's until its end, and from then on nobody's. Method: it
// ends in a millisecond, or has just ended. A question that finds it held must have been
// sent before its end, by a clock that is read before the question; one that finds it
// over, after its end, by a clock that is read last.
func TestLeasesEndWhenTheyEnd(t *testing.T) {
	admin := emptySchema(t)
	for what, ask := range map[string]struct{ asks, over string }{
		"another":             {`lockstile_acquire_5('a', 'other', 60000, '', false, '', 0, 0, false)`, `l.value = 'other'`},
		"another that queues": {`lockstile_acquire_5('a', 'other', 60000, '', true, '', 60000, 0, false)`, `l.value = 'other'`},
		"its own renewal":     {`lockstile_renew_5(ARRAY['a'], ARRAY['mine'], ARRAY[60000], false)`, `l.expires < _ends + interval '30 seconds'`},
		"Break":               {`lockstile_break_5('a', ARRAY(SELECT l.token FROM lockstile_lease l), 60000)`, `true`},
	} {
		for _, left := range []string{"1 millisecond", "0"} {
			repeatedly(t, admin, what+" of a lease that ends in "+left, `
DECLARE _ends timestamptz; _over boolean; _before timestamptz;
BEGIN
  `+acquireMine+`
  UPDATE lockstile_lease SET expires = clock_timestamp() + interval '`+left+`' RETURNING expires INTO _ends;
  _before := clock_timestamp();
  PERFORM `+ask.asks+`;
  SELECT `+ask.over+` INTO _over FROM lockstile_lease l WHERE l.name = 'a';
  _over := coalesce(_over, false);
  IF _over AND clock_timestamp() < _ends THEN
    RAISE EXCEPTION 'found it over % early', _ends - clock_timestamp();
  END IF;
  IF NOT _over AND _before > _ends THEN
    RAISE EXCEPTION 'found it held, % late', _before - _ends;
  END IF;`)
		}
	}
}

// emptySchema returns a pool of a database that has the schema.
func emptySchema(t *testing.T) *pgxpool.Pool {
	t.Helper()
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	unlock(t, lock(t, l, "a"))
	return connect(t, url)
}

// repeatedly runs a block many times, for its readings of the clock are not always
// close enough to show something. Whatever it did is rolled back.
func repeatedly(t *testing.T, admin *pgxpool.Pool, what, block string) {
	t.Helper()
	for range 50 {
		_, err := admin.Exec(soon(t), `DO $$ `+block+` RAISE EXCEPTION USING ERRCODE = 'LS999'; END $$`)
		var done *pgconn.PgError
		if !errors.As(err, &done) || done.Code != "LS999" {
			t.Errorf("%s: %v", what, err)
			return
		}
	}
}
