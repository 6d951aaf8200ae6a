package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	{"0A", "", true}, // the schema's functions say themselves what is wrong with an encoding or an isolation level
	{"2200H", "there are no more tokens", true},
	{"25006", "this server or session is read-only: connect to the primary", false}, // in a failover, its successor is not
	{"25P02", "the transaction has failed before", true},
	{"28", "check the user name and the password", true},
	{"3D000", "the database does not exist", true},
	{"53100", "the disk is full", true},
	{"53300", "the server has too many connections", false},
	{"53", "the server is out of resources", false},
	{"57P03", "the server is starting up, shutting down or recovering", false},
	{"40P01", "the transaction was in a deadlock: take locks in one order", false},
}

// explain says what to do about an error, and marks a refusal. Where a table or function
// is missing, it asks the schema for its version.
func (p *poolRunner) explain(ctx context.Context, err error) error {
	if code := codeOf(err); code == "42883" || code == "42P01" {
		ctx, cancel := context.WithTimeout(ctx, answerTime) // for a connection of the pool
		defer cancel()
		var there int
		if p.pool.QueryRow(ctx, `SELECT lockstile_version()`, p.mode).Scan(&there) == nil && strconv.Itoa(there) != schemaVersion {
			return driver.Refused(otherVersion(there, err))
		}
	}
	return classify(err)
}

// otherVersion says which of the schema and this program is older.
func otherVersion(there int, err error) error {
	if ours, _ := strconv.Atoi(schemaVersion); there > ours {
		return fmt.Errorf("the schema has version %d, and this program is older: it knows version %s: %w", there, schemaVersion, err)
	}
	return fmt.Errorf("the schema has version %d, this program needs version %s: call EnsureSchema or apply Schema: %w", there, schemaVersion, err)
}

// codeOf is the server's code for an error, or "" if the error is not the server's.
func codeOf(err error) string {
	var reply *pgconn.PgError
	if errors.As(err, &reply) {
		return reply.Code
	}
	return ""
}

// classify is explain without a question to the server.
func classify(err error) error {
	code := codeOf(err)
	for _, a := range advice {
		if !strings.HasPrefix(code, a.code) {
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
// out, or may yet be. After an ordinary error of the server's it was not. An error that
// ends the connection may come after the commit, while the server waits for its standby,
// or from a pooler.
func unsure(err error) bool {
	if err == nil || pgconn.SafeToRetry(err) {
		return false
	}
	code := codeOf(err)
	return code == "" || slices.ContainsFunc([]string{"08", "57P", "58", "XX", "40003"},
		func(class string) bool { return strings.HasPrefix(code, class) })
}

// broken reports whether another connection may work. A restarted server leaves broken
// ones in the pool, DISCARD ALL makes one forget its prepared statements, and a name that led to a
// standby for a second leaves connections that never take a write.
func broken(ctx context.Context, err error) bool {
	var reply *pgconn.PgError
	switch {
	case err == nil || ctx.Err() != nil:
		return false
	case errors.As(err, &reply):
		// Ended by an administrator, a crash or the role's limit on idleness, without the
		// prepared statement, or read-only. A standby has no tables that are not logged, and says
		// so when it plans a statement, before a function could look whether it is one.
		return slices.Contains([]string{"57P01", "57P02", "57P05", "26000", "25006"}, reply.Code) ||
			reply.Code == "0A000" && reply.Routine == "get_relation_info"
	}
	return true
}
