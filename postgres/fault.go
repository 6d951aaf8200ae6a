package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstile/locker/driver"
)

// advice says what to do about an error of the server, by its code or the
// beginning of it (PostgreSQL documentation, appendix A), and whether the server will
// not serve us until somebody does. Any other error counts as silence: it may pass.
var advice = []struct {
	code, text string
	refused    bool
}{
	{"42P01", "a table is missing: call EnsureSchema or apply Schema, and check the search path", true},
	{"42883", "a function is missing: call EnsureSchema or apply Schema, and check the search path", true},
	{"42501", "the role may not use the locks' tables, functions or sequence", true},
	{"42", "the schema is not as it was made", true},
	{"0A", "", true}, // what the schema's functions say of an encoding or an isolation level, by themselves
	{"2200H", "there are no more tokens", true},
	{"25006", "this server or session is read-only: connect to the primary", true},
	{"25P02", "the transaction has failed before", true},
	{"28", "check the user name and the password", true},
	{"3D000", "the database does not exist", true},
	{"53100", "the disk is full", true},
	{"53300", "the server has too many connections", false},
	{"53", "the server is out of resources", false},
	{"57P03", "the server is starting up, shutting down or recovering", false},
	{"40P01", "the locks of two transactions wait for each other: take locks in one order", false},
}

// classify adds advice, and tells a refusal from silence.
func classify(err error) error {
	var version *versionError
	if errors.As(err, &version) { // which says it all
		return driver.Refused(err)
	}
	var reply *pgconn.PgError
	if !errors.As(err, &reply) {
		return err
	}
	for _, a := range advice {
		if !strings.HasPrefix(reply.Code, a.code) {
			continue
		}
		if a.text != "" {
			err = fmt.Errorf("%s: %w", a.text, err)
		}
		if a.refused {
			err = driver.Refused(err)
		}
		break
	}
	return err
}

// unsure reports whether a statement that ended with err may have been carried
// out, or may yet be. An ordinary error of the server's says that it was not; one
// that ends the connection may come after the commit, while the server waits for
// its standby, and a pooler may send one of its own.
func unsure(err error) bool {
	var reply *pgconn.PgError
	if err == nil || pgconn.SafeToRetry(err) {
		return false
	}
	if errors.As(err, &reply) {
		for _, class := range []string{"08", "57P", "58", "XX", "40003"} {
			if strings.HasPrefix(reply.Code, class) {
				return true
			}
		}
		return false
	}
	return true
}

// broken reports whether the connection broke, so that another may work. A
// restarted server leaves broken ones in the pool, and
// one may have been made to forget its prepared statements (DISCARD ALL).
func broken(ctx context.Context, err error) bool {
	var reply *pgconn.PgError
	switch {
	case err == nil || ctx.Err() != nil:
		return false
	case errors.As(err, &reply):
		// Ended by an administrator or a crash, or without the prepared statement.
		return reply.Code == "57P01" || reply.Code == "57P02" || reply.Code == "26000"
	}
	return true
}

// explain asks for the version of a schema that has not what was asked of it.
func (p *poolRunner) explain(ctx context.Context, err error) error {
	var reply *pgconn.PgError
	if !errors.As(err, &reply) || reply.Code != "42883" && reply.Code != "42P01" {
		return err
	}
	var there int
	if p.pool.QueryRow(ctx, `SELECT lockstile_version()`, p.mode).Scan(&there) != nil || strconv.Itoa(there) == schemaVersion {
		return err
	}
	return &versionError{there, err}
}

// versionError says that the schema is another program's.
type versionError struct {
	there int
	err   error
}

func (e *versionError) Unwrap() error { return e.err }

func (e *versionError) Error() string {
	if ours, _ := strconv.Atoi(schemaVersion); e.there > ours {
		return fmt.Sprintf("the schema has version %d, and this program is older: it knows version %s", e.there, schemaVersion)
	}
	return fmt.Sprintf("the schema has version %d, this program needs version %s: call EnsureSchema or apply Schema", e.there, schemaVersion)
}
