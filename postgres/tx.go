package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// LockTx locks name until tx ends, and returns a token for it. The lock and what
// tx writes come and go together, so no pause, crash or failover can part them:
// what happens in this database alone needs no other guard. LockTx waits in the
// server's own queue until the lock is held or ctx ends.
//
// A holder that is stopped in the midst of tx keeps the lock until tx ends, and there is no TTL. Set
// idle_in_transaction_session_timeout for the role or the connection: then the server ends such a
// connection (SQLSTATE 25P03 for the holder's next statement). It has written nothing, and can run tx again.
//
// If ctx has already ended, or the name is an error, nothing was sent. After any other
// error tx is over: the server has refused, or pgx has ended the connection with ctx; a
// lock that was granted just then ends when the server notices. LockTx asks once before it
// waits. So what ends the wait (ctx, the session's lock_timeout, statement_timeout or
// transaction_timeout) is a [locker.ErrTaken], and if the server had not answered by then,
// a [locker.ErrUnavailable]. From then on, until tx ends, the server looks each second whether the client is still there
// (client_connection_check_interval): a process that dies while it waits keeps nobody out.
//
// There are no options: the lock lasts as long as tx, and no longer, so nothing could keep
// it for a [locker.WithMinHold].
//
// The lock is an advisory lock with the key hashtextextended(name, 0), like those of
// [NewSession], whose holders it excludes. It excludes the leases of [New] as well: while it waits for a
// lease to end it looks ten times a second, lets nobody begin another, and may overtake those who wait for one. A
// transaction that already has the lock gets it again, with a greater token. Two
// transactions that take two locks in different orders can end up waiting for each
// other: the server then ends one of them with an error. It does not see that a transaction waits for a lease, or
// a lease's holder for a transaction: whoever takes both kinds must take them in one order, and a holder of a lease that
// asks for the same name in a transaction waits for itself.
//
// The token is good inside tx. It is drawn in tx and becomes durable with it. Until tx
// has committed, a crash of the server may give the token to somebody else, so whatever
// leaves the database earlier needs a token that was drawn and committed before. If the
// session runs with synchronous_commit off or local, the commit of tx is made to wait for
// the disk as usual. After the commit the token is good everywhere, also if tx wrote
// nothing.
//
// At the isolation levels above read committed, tx reads the database as it was
// at its first statement. If that came before the lock was granted, it does not
// see what the last holder wrote (writing over it is an error). Nor does it see leases, so at these levels LockTx is refused as
// soon as the database has had one ([locker.ErrRefused]).
func LockTx(ctx context.Context, tx pgx.Tx, name string) (fencing.Token, error) {
	token, err := lockTx(ctx, tx, name, false)
	return fencing.Token(token), err
}

// LockTxShared is LockTx for a lock that any number of transactions share: those that read
// what others write under LockTx. The number that it returns is greater than the tokens of
// all earlier locks of the name, and smaller than those of all later ones. Drawing it is a
// write, so tx must not be READ ONLY. LockTxShared excludes
// LockTx and the exclusive locks of [NewSession], and goes together with shared ones. While
// somebody waits for an exclusive lock it waits behind, unless tx has the lock already.
//
// LockTx after LockTxShared in one transaction waits for all others that share the lock. Two
// transactions that do so are in a deadlock, and the server ends one of them with an
// error: take the lock that you need in the end first.
func LockTxShared(ctx context.Context, tx pgx.Tx, name string) (fencing.SharedToken, error) {
	token, err := lockTx(ctx, tx, name, true)
	return fencing.SharedToken(token), err
}

func lockTx(ctx context.Context, tx pgx.Tx, name string, shared bool) (uint64, error) {
	if err := locker.CheckName(name); err != nil {
		return 0, err
	}
	if tx == nil {
		return 0, errors.New("postgres: the transaction is nil")
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("postgres: lock %q in a transaction: %w", name, context.Cause(ctx))
	}
	token, err := askTx(ctx, tx, name, shared, false)
	taken := token == 0 && err == nil
	if taken {
		token, err = askTx(ctx, tx, name, shared, true)
	}
	if err == nil {
		return token, nil
	}
	class := locker.ErrUnavailable
	// Or a limit of the session's, or an administrator, has ended the wait: lock_timeout, statement_timeout or
	// pg_cancel_backend, transaction_timeout.
	if taken && (ctx.Err() != nil || slices.Contains([]string{"55P03", "57014", "25P04"}, codeOf(err))) {
		class = locker.ErrTaken
	}
	return 0, fmt.Errorf("postgres: lock %q in a transaction: %w: %w", name, class, withCause(ctx, classify(err)))
}

// askTx returns 0 if somebody else has the lock. With wait it waits instead.
func askTx(ctx context.Context, tx pgx.Tx, name string, shared, wait bool) (uint64, error) {
	var token uint64
	mode := execMode(tx.Conn().Config().DefaultQueryExecMode)
	err := tx.QueryRow(ctx, `SELECT lockstile_lock_tx_`+schemaVersion+`($1::pg_catalog.text, $2::boolean, $3::boolean)`, mode, name, shared, wait).Scan(&token)
	return token, err
}

// lockstile_lock_tx returns 0 if somebody else has the lock and it may not wait. It draws
// its token once the lock is there, in the transaction that holds it. The commit has to
// wait for the disk, also where nothing else is written: it waits for the message.
//
// Whoever grants a lease has the same advisory key until the row can be seen (schemaLease). So a transaction that has the
// key sees all leases of the name, if it takes a new picture for each statement. It keeps the key, which lets
// nobody begin a lease, while it waits for those that are there. At the levels above read committed it
// may see none of them. The index of their table has a second page from the first lease on, and
// never gives it back: that is seen at every level.
const schemaTx = `
CREATE OR REPLACE FUNCTION lockstile_lock_tx_` + schemaVersion + `(_name text, _shared boolean, _wait boolean) RETURNS bigint LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _key bigint := hashtextextended(_name, 0);
  _began timestamptz := clock_timestamp();
  _token bigint;
BEGIN` + schemaEncoding + `
  IF current_setting('transaction_read_only') = 'on' AND NOT pg_is_in_recovery() THEN
    RAISE EXCEPTION 'a lock draws a token, which is a write, and this transaction is READ ONLY: begin it READ WRITE' USING ERRCODE = 'feature_not_supported';
  END IF;
  IF NOT (CASE WHEN _wait AND _shared THEN pg_advisory_xact_lock_shared(_key) IS NOT NULL
      WHEN _wait THEN pg_advisory_xact_lock(_key) IS NOT NULL
      WHEN _shared THEN pg_try_advisory_xact_lock_shared(_key)
      ELSE pg_try_advisory_xact_lock(_key) END) THEN
    PERFORM lockstile_watch(true);
    RETURN 0;
  END IF;
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    IF (SELECT pg_relation_size(i.indexrelid) > current_setting('block_size')::bigint FROM pg_index i WHERE i.indrelid = 'lockstile_lease'::regclass) IS NOT FALSE THEN
      RAISE EXCEPTION 'this database has leases, and a transaction at the isolation level "%" may not see them: lock at "read committed"',
        current_setting('transaction_isolation') USING ERRCODE = 'feature_not_supported';
    END IF;
  ELSE
    WHILE ` + schemaLeased + ` LOOP
      IF NOT _wait THEN
        PERFORM lockstile_watch(true);
        RETURN 0;
      ELSIF clock_timestamp() - _began > nullif(current_setting('lock_timeout')::interval, '0') THEN
        RAISE EXCEPTION 'a lease has the lock, and lock_timeout is over' USING ERRCODE = 'lock_not_available';
      END IF;
      PERFORM pg_sleep(0.1);
    END LOOP;
  END IF;` + schemaSync + `
  SELECT nextval('lockstile_token') * 1024 INTO _token` + schemaDraw + `;` + schemaNote + `
  PERFORM pg_logical_emit_message(true, 'lockstile', '');
  RETURN _token;
END $$;
`
