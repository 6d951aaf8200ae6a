package sqltabletest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/sqltable"
)

// What a connection's settings change in the meaning of a statement, or of its answer, must not matter. Many pools have one of these.
func TestSettingsOfAConnectionDoNotMatter(t *testing.T) {
	s := mariaDB(t)
	for i, params := range []string{
		"", "clientFoundRows=true", "interpolateParams=true", "multiStatements=true", "compress=true",
		"charset=latin1", "collation=utf8mb4_general_ci", "sql_mode=''", "sql_mode='NO_BACKSLASH_ESCAPES,ANSI_QUOTES'", "sql_mode='ORACLE'",
		"sql_mode='TRADITIONAL,PAD_CHAR_TO_FULL_LENGTH'", "sql_safe_updates=1", "parseTime=true&loc=Pacific%2FKiritimati", "time_zone='%2B13:00'",
		"tx_isolation='READ-COMMITTED'", "tx_isolation='SERIALIZABLE'",
	} {
		t.Run(params, func(t *testing.T) {
			began := time.Now()
			r, other := mysqlRows(t, s.DSN(locks, params)), mysqlRows(t, s.DSN(locks))
			name, record := fmt.Sprintf("%d \\' ` ä ", i), "{\"\\\\\": \"\\\" ' ` ß 😀 % _\"}"
			first := r.swapped(name, "", record)
			r.isLate(name, "")
			other.isLate(name, "")
			second := other.swapped(name, first, "2")
			r.isLate(name, first)
			third := r.swapped(name, second, record+"3")
			for _, by := range []rows{r, other} {
				e := by.got(name)
				if string(e.Record) != record+"3" || e.Version != third || e.Age < 0 || e.Age > time.Since(began) {
					t.Errorf("Get returned %q at version %q, %v old", e.Record, e.Version, e.Age)
				}
				if e := by.got(strings.TrimRight(name, " ")); e.Version != "" {
					t.Errorf("a name without a record has %q", e.Record)
				}
			}
			if entries, err := r.List(t.Context(), name[:len(name)-1]); err != nil || len(entries) != 1 || string(entries[name].Record) != record+"3" {
				t.Errorf("List returned %v, %v", entries, err)
			}
		})
	}
}

// With local time, a record that was written before the clocks are set back would be half an hour younger than nothing, and in spring one
// of a second ago would be an hour old: a live holder would be taken for dead. Method: the server is in New York in autumn, and connections
// say what time it is.
func TestAgeDoesNotFollowLocalTime(t *testing.T) {
	t.Setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
	s := mariaDB(t)
	at := func(utc time.Time) string { return s.DSN(locks, fmt.Sprint("timestamp=", utc.Unix())) }
	for what, change := range map[string]time.Time{
		"back":    time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC),
		"forward": time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC),
	} {
		before, after := at(change.Add(-15*time.Minute)), at(change.Add(15*time.Minute))
		passed := ask(t, open(t, "mysql", after), "SELECT TIMESTAMPDIFF(MINUTE, '"+ask(t, open(t, "mysql", before), "SELECT NOW()")+"', NOW())")
		if passed == "30" {
			t.Fatal("the server does not set its clock, so this test says nothing")
		}
		mysqlRows(t, before).swapped(what, "", "1")
		if age := mysqlRows(t, after).got(what).Age; age > 30*time.Minute || age < 30*time.Minute-time.Second {
			t.Errorf("clocks are set %s: a record of half an hour ago is said to be %v old (and %s minutes by local time)", what, age, passed)
		}
		if age := mysqlRows(t, before).got(what).Age; age != 0 {
			t.Errorf("clocks are set %s: a record of now is said to be %v old", what, age)
		}
	}
}

// A driver that prepares statements first takes two round trips. What counts them is the server. The page says the same.
func TestEachRequestIsOneStatement(t *testing.T) {
	s := mariaDB(t)
	a, b, db := onMariaDB(t, s), onMariaDB(t, s), open(t, "mysql", s.DSN(locks))
	use := func(l locker.Locker, name string) func() { return func() { unlocked(t, tried(t, l, name)) } }
	counters := []string{"Com_select", "Com_insert", "Com_update", "Com_stmt_prepare", "Com_begin", "Com_commit", "Com_set_option", "Questions"}
	for _, c := range []struct {
		what                     string
		do                       func()
		selects, inserts, writes int
	}{
		{"the first lock of a process, and its release", use(a, "one"), 1 + 1, 2 + 1, 4 + 2}, // the row that shows what the store is like is made, too
		{"the same process again", use(a, "one"), 0, 0, 2},
		{"the first lock of another process", use(b, "one"), 1 + 1, 1, 3 + 2},
		{"the other one again", use(b, "one"), 0, 0, 2},
		{"two in turn for the first time", use(a, "one"), 1, 0, 3}, // the first UPDATE is refused
		{"two in turn", func() { use(b, "one")(); use(a, "one")() }, 2, 0, 5},
		{"two in turn again", func() { use(b, "one")(); use(a, "one")() }, 2, 0, 4},
		{"a new name", use(a, "another"), 1, 1, 2},
	} {
		before := make([]int, len(counters))
		for i, name := range counters {
			before[i] = status(t, db, name)
		}
		c.do()
		for i, want := range []int{c.selects, c.inserts, c.writes, 0, 0, 0, 0, c.selects + c.inserts + c.writes + len(counters)} { // it counts this test's own, too
			if got := status(t, db, counters[i]) - before[i]; got != want {
				t.Errorf("%s: %s grew by %d, and not by %d", c.what, counters[i], got, want)
			}
		}
	}
}

// An INSERT that waits for others of the same name, or in the same gap of an index, must not end in a deadlock, and one alone may have
// made the record.
func TestManyMakeTheSameRowsAtOnce(t *testing.T) {
	s := mariaDB(t)
	for _, isolation := range []string{"REPEATABLE-READ", "READ-COMMITTED"} {
		var all sync.WaitGroup
		won := make([]atomic.Int32, 100)
		for p := range 8 {
			r := mysqlRows(t, s.DSN(locks, "tx_isolation='"+isolation+"'", "clientFoundRows="+fmt.Sprint(p%2 == 0)))
			all.Go(func() {
				for i := range won {
					switch _, err := r.Swap(t.Context(), fmt.Sprint(isolation, i*37%len(won)), "", fmt.Append(nil, "by ", p)); {
					case err == nil:
						won[i].Add(1)
					case !errors.Is(err, register.ErrChanged):
						t.Errorf("Swap: %v", err)
					}
				}
			})
		}
		all.Wait()
		for i := range won {
			if n := won[i].Load(); n != 1 {
				t.Errorf("%s: %d of 8 have made the row %d", isolation, n, i)
			}
		}
	}
}

// A request that comes late must not find a row at the version that it expects, whatever has become of the row.
func TestRequestThatComesAfterItsRowWasDeletedIsRefused(t *testing.T) {
	s := mariaDB(t)
	r, db := mysqlRows(t, s.DSN(locks)), open(t, "mysql", s.DSN(locks))
	versions := []string{r.swapped("swept", "", "1")}
	versions = append(versions, r.swapped("swept", versions[0], "2"))
	do(t, db, "DELETE FROM lockstile")
	for range 2 { // without a row, and with another one
		for _, version := range versions {
			r.isLate("swept", version)
		}
		if e := r.got("swept"); e.Version == "" {
			r.swapped("swept", "", "another 1")
		}
	}
}

// Settings with which a confirmed write is lost, or never made, are refused, and locks are granted again once they are mended. A replica that takes over
// may have other settings, so that what was once right says nothing.
func TestSettingsThatLoseWritesAreRefused(t *testing.T) {
	s := mariaDB(t, "log-bin", "server-id=1", "sync-binlog=1")
	db, l := open(t, "mysql", s.DSN(locks)), onMariaDB(t, s)
	for i, c := range []struct{ set, refused string }{
		{"sync_binlog = 1", ""},
		{"innodb_flush_log_at_trx_commit = 2", "innodb_flush_log_at_trx_commit"},
		{"innodb_flush_log_at_trx_commit = 0", "innodb_flush_log_at_trx_commit"},
		{"innodb_flush_log_at_trx_commit = 1", ""},
		{"sync_binlog = 0", "sync_binlog"},
		{"sync_binlog = 10", "sync_binlog"},
		{"innodb_flush_log_at_trx_commit = 3", ""}, // then the log is synced as well
	} {
		do(t, db, "SET GLOBAL "+c.set)
		if c.refused != "" {
			isRefused(t, l, c.refused)
			continue
		}
		unlocked(t, tried(t, l, fmt.Sprint("with ", i)))
	}
	isRefused(t, onMariaDB(t, s, "autocommit=0"), "autocommit")
	do(t, db, "SET GLOBAL autocommit = 0")
	isRefused(t, onMariaDB(t, s), "autocommit")
	unlocked(t, tried(t, onMariaDB(t, s, "autocommit=1"), "with autocommit"))
}

// The errors of a server that lasts until somebody does something end a wait at once, whatever the driver's type of error is.
func TestErrorsThatLastAreRefused(t *testing.T) {
	s := mariaDB(t)
	db := open(t, "mysql", s.DSN(locks))
	for _, statement := range []string{
		"CREATE USER reader@'127.0.0.1'", "GRANT SELECT ON locks.* TO reader@'127.0.0.1'",
		"CREATE USER stranger@'127.0.0.1'",
		"CREATE TABLE others (name VARBINARY(512) PRIMARY KEY)",
	} {
		do(t, db, statement)
	}
	as := func(user, database string) string {
		return strings.Replace(s.DSN(database), "root@", user+"@", 1)
	}
	for what, c := range map[string]struct{ dsn, table, words string }{
		"no table":                  {as("root", locks), "none", "1146"},
		"other columns":             {as("root", locks), "others", "1054"},
		"no database":               {as("root", "none"), "", "1049"},
		"no password":               {as("root:wrong", locks), "", "1045"},
		"no such user":              {as("nobody", locks), "", "1045"},
		"no database for this user": {as("stranger", locks), "", "1044"},
		"no rights to read":         {as("stranger", ""), "locks.lockstile", "1142"},
		"no rights to write":        {as("reader", locks), "", "1142"},
	} {
		t.Run(what, func(t *testing.T) {
			l := newLocker(t, open(t, "mysql", c.dsn), sqltable.MySQL, sqltable.Options{Table: c.table})
			isRefused(t, l, c.words)
		})
	}
}

// A server that only reads is about to be promoted, or its successor is: those who wait go on waiting.
func TestAServerThatOnlyReadsIsWaitedFor(t *testing.T) {
	s := mariaDB(t)
	db := open(t, "mysql", s.DSN(locks))
	do(t, db, "CREATE USER app@'127.0.0.1'")
	do(t, db, "GRANT SELECT, INSERT, UPDATE ON locks.lockstile TO app@'127.0.0.1'") // all that is needed
	app := strings.Replace(s.DSN(locks), "root@", "app@", 1)
	a, b := newLocker(t, open(t, "mysql", app), sqltable.MySQL, sqltable.Options{}), newLocker(t, open(t, "mysql", app), sqltable.MySQL, sqltable.Options{})
	held := tried(t, a, "failover")
	waiting := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		lock, err := b.Lock(ctx, "failover")
		if err == nil {
			err = lock.Unlock(ctx)
		}
		waiting <- err
	}()
	queued(t, a, "failover")

	do(t, db, "SET GLOBAL read_only = 1")
	if lock, err := a.TryLock(t.Context(), "another"); !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrRefused) {
		t.Errorf("a server that only reads was asked for a lock, and the answer is %v, %v", lock, err)
	}
	select {
	case err := <-waiting:
		t.Fatalf("a waiter gave up: %v", err)
	case <-time.After(time.Second): // it has looked by now
	}
	do(t, db, "SET GLOBAL read_only = 0")
	unlocked(t, held)
	if err := <-waiting; err != nil {
		t.Error(err)
	}
}

// database/sql sends a statement again if its driver says that it was never sent. A statement whose answer is lost was sent: the second one would find
// the record changed by the first, and be told that it was refused.
func TestStatementWhoseAnswerIsLostIsNotSentAgain(t *testing.T) {
	s := mariaDB(t)
	proxy := conformance.NewProxy(t, s.Addr())
	direct, far := mysqlRows(t, s.DSN(locks)), mysqlRows(t, testserver.MariaDBDSN(proxy.Addr(), locks))
	db := open(t, "mysql", s.DSN(locks))
	version := far.swapped("lost", "", "0")
	for i := range 5 {
		far.got("lost") // has a connection
		updates, record := status(t, db, "Com_update"), fmt.Sprint("of ", i)
		proxy.CutReplies()
		answer := make(chan error, 1)
		go func() {
			_, err := far.Swap(t.Context(), "lost", version, []byte(record))
			answer <- err
		}()
		until(t, "the request has arrived", func() bool { return string(direct.got("lost").Record) == record })
		proxy.Heal() // ends the connection
		if err := <-answer; err == nil || errors.Is(err, register.ErrChanged) || errors.Is(err, locker.ErrRefused) {
			t.Errorf("a write that was made, and whose answer was lost, returned the error %v", err)
		}
		if n := status(t, db, "Com_update") - updates; n != 1 {
			t.Errorf("a write was sent %d times", n)
		}
		version = record
	}
}

// A connection that ended while nobody used it costs nobody a lock.
func TestConnectionsThatHaveEndedAreReplaced(t *testing.T) {
	s := mariaDB(t)
	proxy := conformance.NewProxy(t, s.Addr())
	l := newLocker(t, open(t, "mysql", testserver.MariaDBDSN(proxy.Addr(), locks)), sqltable.MySQL, sqltable.Options{})
	other := onMariaDB(t, s)
	held := tried(t, l, "held", locker.WithTTL(3*time.Second))
	for range 4 {
		proxy.Heal() // ends all connections
		before := held.Deadline()
		if err := held.Renew(t.Context()); err != nil || !held.Deadline().After(before) {
			t.Fatalf("after its connections were cut, a holder's renewal returned %v", err)
		}
		isTaken(t, other, "held")
	}
	proxy.Heal()
	unlocked(t, held)
	unlocked(t, tried(t, other, "held"))
}

// While a row is locked by others, a write does not end with its context: the server goes on with it, and may make it later.
func TestWriteThatIsGivenUpIsNotSaidToBeRefused(t *testing.T) {
	s := mariaDB(t)
	r, db := mysqlRows(t, s.DSN(locks)), open(t, "mysql", s.DSN(locks))
	version := r.swapped("row", "", "1")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT * FROM lockstile FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = r.Swap(ctx, "row", version, []byte("2"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, register.ErrChanged) || time.Since(began) > patience/2 {
		t.Errorf("a write that was given up returned the error %v after %v", err, time.Since(began))
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	until(t, "the server writes what the client has given up", func() bool { return r.got("row").Version == "2" })
	r.isLate("row", version)
}

// What was confirmed is there after a crash.
func TestLocksSurviveAKilledServer(t *testing.T) {
	s := mariaDB(t)
	a, b := onMariaDB(t, s), onMariaDB(t, s)
	first := tried(t, a, "first")
	unlocked(t, first)
	held := tried(t, a, "held")
	s.Kill()
	if lock, err := b.TryLock(t.Context(), "held"); !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrRefused) {
		t.Errorf("without a server, a lock was asked for, and the answer is %v, %v", lock, err)
	}
	s.Start()
	isTaken(t, b, "held")
	if err := held.Renew(t.Context()); err != nil {
		t.Errorf("after a crash, the holder's renewal returned %v", err)
	}
	if second := tried(t, b, "first"); second.Token() <= first.Token() {
		t.Errorf("after a crash, the token %d follows %d", second.Token(), first.Token())
	}
	unlocked(t, held)
	unlocked(t, tried(t, b, "held"))
}

// A replica, whichever way statements reach it, has the rows as they are. If it has all of them and takes over, the locks go on.
func TestLocksGoOnAtAReplicaThatHasThemAll(t *testing.T) {
	primary, replica := mariaDB(t, "log-bin", "server-id=1", "sync-binlog=1"), testserver.MariaDB(t, "server-id=2")
	p, r := open(t, "mysql", primary.DSN(locks)), open(t, "mysql", replica.DSN(""))
	_, port, _ := strings.Cut(primary.Addr(), ":")
	do(t, r, "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = "+port+", MASTER_USER = 'root', MASTER_USE_GTID = slave_pos")
	do(t, r, "START SLAVE")
	var names []string
	for _, format := range []string{"STATEMENT", "MIXED", "ROW"} {
		do(t, p, "SET GLOBAL binlog_format = "+format)
		db := open(t, "mysql", primary.DSN(locks))
		db.SetMaxOpenConns(1)
		l := newLocker(t, db, sqltable.MySQL, sqltable.Options{})
		unlocked(t, tried(t, l, format))
		if warnings := ask(t, db, "SELECT @@warning_count"); warnings != "0" {
			t.Errorf("%s: the server has %s warnings", format, warnings)
		}
		names = append(names, format)
	}
	proxy := conformance.NewProxy(t, primary.Addr())
	a := newLocker(t, open(t, "mysql", testserver.MariaDBDSN(proxy.Addr(), locks)), sqltable.MySQL, sqltable.Options{SyncReplica: true})
	held := tried(t, a, "held")

	all := "SELECT GROUP_CONCAT(HEX(name), HEX(record), changed ORDER BY name) FROM locks.lockstile"
	if ask(t, r, "SELECT MASTER_GTID_WAIT('"+ask(t, p, "SELECT @@gtid_binlog_pos")+"', 30)") != "0" {
		t.Fatal("the replica does not follow")
	}
	if have, had := ask(t, r, all), ask(t, p, all); have != had {
		t.Fatalf("the replica has %s, and not %s", have, had)
	}
	primary.Kill()
	do(t, r, "STOP SLAVE")
	proxy.Retarget(replica.Addr())
	proxy.Heal()
	b := onMariaDB(t, replica)
	isTaken(t, b, "held")
	if err := held.Renew(t.Context()); err != nil {
		t.Errorf("after a failover, the holder's renewal returned %v", err)
	}
	unlocked(t, held)
	if next := tried(t, b, "held"); next.Token() <= held.Token() {
		t.Errorf("after a failover, the token %d follows %d", next.Token(), held.Token())
	}
	for _, name := range names {
		unlocked(t, tried(t, b, name))
	}
}

// A server that stands still keeps its connections, and answers nobody.
func TestLockIsLostWhileTheServerStandsStill(t *testing.T) {
	s := mariaDB(t)
	a, b := onMariaDB(t, s), onMariaDB(t, s)
	held := tried(t, a, "still", locker.WithTTL(2*time.Second))
	s.Pause()
	select {
	case <-held.Lost():
	case <-time.After(patience):
		t.Error("a lock that nobody could renew is not lost")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if lock, err := b.TryLock(ctx, "still"); !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that stands still was asked for a lock, and the answer is %v, %v", lock, err)
	}
	s.Resume()
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	next, err := b.Lock(ctx, "still")
	if err != nil {
		t.Fatal(err)
	}
	if next.Token() <= held.Token() {
		t.Errorf("the token %d follows %d", next.Token(), held.Token())
	}
	if err := held.Unlock(ctx); !errors.Is(err, locker.ErrLost) {
		t.Errorf("the release of a lock that was lost returned %v", err)
	}
	unlocked(t, next)
}
