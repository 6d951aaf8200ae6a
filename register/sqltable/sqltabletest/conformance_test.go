// Package sqltabletest has the tests of package sqltable, in a module of their own: what they require of drivers would otherwise
// set the least versions of these for all users of the locks.
package sqltabletest

import (
	"sync"
	"testing"

	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/registertest"
	"github.com/lockstile/locker/register/sqltable/internal/table"
)

func TestConformanceOnMariaDB(t *testing.T) {
	s := mariaDB(t)
	registertest.Run(t, registertest.Harness{
		New: func(t testing.TB) register.Store {
			return table.New(open(t, "mysql", s.DSN(locks)), table.MySQL, "lockstile")
		},
		Options: register.Options{Backend: "sqltable", Age: true},
	})
}

// Clauses that run at the same time have a file each: writers of one file wait for each other, with pauses of up to 100 ms.
func TestConformanceOnSQLite(t *testing.T) {
	var files sync.Map
	registertest.Run(t, registertest.Harness{
		New: func(of testing.TB) register.Store {
			dsn, _ := files.LoadOrStore(of.Name(), sync.OnceValue(func() string { return sqliteFileIn(of, t.TempDir()) }))
			return table.New(open(of, "sqlite", dsn.(func() string)()), table.SQLite, "lockstile")
		},
		Options: register.Options{Backend: "sqltable", Age: true},
	})
}
