// Package sqltabletest has the tests of package sqltable, in a module of their own: what they require of drivers would otherwise
// set the least versions of these for all users of the locks.
package sqltabletest

import (
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

func TestConformanceOnSQLite(t *testing.T) {
	dsn := sqliteFile(t)
	registertest.Run(t, registertest.Harness{
		New:     func(t testing.TB) register.Store { return table.New(open(t, "sqlite", dsn), table.SQLite, "lockstile") },
		Options: register.Options{Backend: "sqltable", Age: true},
	})
}
