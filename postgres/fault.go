package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstile/locker"
)

// advice says what to do about an error of the server, by its code or the
// beginning of it (PostgreSQL documentation, appendix A).
var advice = []struct{ code, text string }{
	{"42P01", "a table is missing: call EnsureSchema or apply Schema, and check the search path"},
	{"42883", "a function is missing: call EnsureSchema or apply Schema, and check the search path"},
	{"42501", "the role may not use the locks' tables, functions or sequences"},
	{"25006", "this server or session is read-only: connect to the primary"},
	{"25P02", "the transaction has failed before"},
	{"28", "check the user name and the password"},
	{"3D000", "the database does not exist"},
	{"53300", "the server has too many connections"},
	{"53", "the server is out of resources"},
	{"57P03", "the server is starting up, shutting down or recovering"},
	{"40P01", "the locks of two transactions wait for each other: take locks in one order"},
}

// classify adds locker.ErrUnavailable and advice.
func classify(err error) error {
	var reply *pgconn.PgError
	var version *versionError
	switch {
	case err == nil || errors.Is(err, locker.ErrUnavailable):
		return err
	case errors.As(err, &version): // which says it all
	case errors.As(err, &reply):
		for _, a := range advice {
			if strings.HasPrefix(reply.Code, a.code) {
				return fmt.Errorf("%w: %s: %w", locker.ErrUnavailable, a.text, err)
			}
		}
	}
	return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
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

// terminated reports whether the server said that it ended the session.
func terminated(err error) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply) && reply.Code == "57P01"
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
