package sqltable_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/register/sqltable"
)

// What a failover may lose is declared, unless the options say that there is none: a program that needs more can refuse it.
func TestOptionsDeclareWhatAFailoverLoses(t *testing.T) {
	const always = locker.PromptHolder | locker.SteadyClocks
	for _, c := range []struct {
		dialect           sqltable.Dialect
		opts              sqltable.Options
		exclusion, tokens locker.Assumptions
	}{
		{sqltable.MySQL, sqltable.Options{}, always | locker.AgreedClocks | locker.DurableReplica, locker.DurableReplica},
		{sqltable.MySQL, sqltable.Options{SyncReplica: true}, always | locker.AgreedClocks, 0},
		{sqltable.MySQL, sqltable.Options{NoReplica: true}, always, 0},
		{sqltable.SQLite, sqltable.Options{}, always, 0},
	} {
		l, err := sqltable.New(new(sql.DB), c.dialect, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		g := l.Guarantees()
		if g.Exclusion != c.exclusion || g.Tokens != c.tokens || !g.KeepsMinHold || !g.Shared || !g.Slots || !g.Fair {
			t.Errorf("dialect %d with %+v guarantees %+v", c.dialect, c.opts, g)
		}
		if err := locker.Require(l, locker.Correctness); (err == nil) != (c.tokens == 0) {
			t.Errorf("dialect %d with %+v is required to be correct: %v", c.dialect, c.opts, err)
		}
	}
}

func TestOptionsThatCannotBeKeptAreRefused(t *testing.T) {
	for words, ask := range map[string]func() error{
		"nil":         func() error { return refusal(nil, sqltable.MySQL, sqltable.Options{}) },
		"dialect 0":   func() error { return refusal(new(sql.DB), 0, sqltable.Options{}) },
		"no replicas": func() error { return refusal(new(sql.DB), sqltable.SQLite, sqltable.Options{NoReplica: true}) },
		"no replica":  func() error { return refusal(new(sql.DB), sqltable.SQLite, sqltable.Options{SyncReplica: true}) },
		"exclude": func() error {
			return refusal(new(sql.DB), sqltable.MySQL, sqltable.Options{SyncReplica: true, NoReplica: true})
		},
		"Poll": func() error { return refusal(new(sql.DB), sqltable.MySQL, sqltable.Options{Poll: time.Hour}) },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), words) || !strings.HasPrefix(err.Error(), "sqltable: ") {
			t.Errorf("the error %v does not say %q", err, words)
		}
	}
}

func refusal(db *sql.DB, dialect sqltable.Dialect, opts sqltable.Options) error {
	_, err := sqltable.New(db, dialect, opts)
	return err
}

func TestSchemaQuotesItsName(t *testing.T) {
	for name, want := range map[string]string{
		"":           "CREATE TABLE IF NOT EXISTS `lockstile` (",
		"order":      "CREATE TABLE IF NOT EXISTS `order` (",
		"app.locks":  "CREATE TABLE IF NOT EXISTS `app`.`locks` (",
		"a` (x); --": "CREATE TABLE IF NOT EXISTS `a`` (x); --` (",
	} {
		for _, dialect := range []sqltable.Dialect{sqltable.MySQL, sqltable.SQLite} {
			if got := sqltable.Schema(dialect, name); !strings.HasPrefix(got, want) {
				t.Errorf("the schema of %q is %s", name, got)
			}
		}
	}
}
