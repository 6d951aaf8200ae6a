package sqltabletest

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/quoted"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/sqltable"
)

// onMySQL returns locks in a table of MySQL or MariaDB, such as "app:secret@tcp(db:3306)/app?rejectReadOnly=true".
func onMySQL(ctx context.Context, dsn string) (*register.Locker, error) {
	db, err := sql.Open("mysql", dsn) // of github.com/go-sql-driver/mysql, for locks alone
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, sqltable.Schema(sqltable.MySQL, "")); err != nil {
		return nil, err
	}
	return sqltable.New(db, sqltable.MySQL, sqltable.Options{})
}

// inFile returns locks in a file of SQLite.
func inFile(ctx context.Context, path string) (*register.Locker, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)") // of modernc.org/sqlite
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, sqltable.Schema(sqltable.SQLite, "")); err != nil {
		return nil, err
	}
	return sqltable.New(db, sqltable.SQLite, sqltable.Options{})
}

func Example() {
	dir, err := os.MkdirTemp("", "locks")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	locks, err := inFile(ctx, filepath.Join(dir, "locks.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	err = locker.Do(ctx, locks, "report", func(ctx context.Context, lock *locker.Lock) error {
		_, err := locks.TryLock(ctx, "report")
		fmt.Println(err)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: sqltable: lock "report": taken by another holder
}

func TestThePageShowsWhatIsRun(t *testing.T) { quoted.Check(t, "../README.md", "example_test.go") }

func TestThePageShowsTheTables(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, dialect := range []sqltable.Dialect{sqltable.MySQL, sqltable.SQLite} {
		if schema := sqltable.Schema(dialect, ""); !strings.Contains(strings.Join(strings.Fields(string(page)), " "), schema+";") {
			t.Errorf("the page has not: %s", schema)
		}
	}
}

func TestExampleOnMariaDB(t *testing.T) {
	l, err := onMySQL(t.Context(), mariaDB(t).DSN(locks, "rejectReadOnly=true"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	unlocked(t, tried(t, l, "example"))
}
