// Package postgres implements [locker.Locker] in a PostgreSQL database, in three
// ways. [New] keeps leases in a table: the usual choice, and the one that works
// through a connection pooler. [NewSession] takes advisory locks, which have no
// lease, on connections of its own. [LockTx] locks inside the caller's transaction: if
// lock and data are in one database, nothing is safer.
//
// All draw their tokens from the same sequence of the database. Before first use the
// database needs the [Schema].
//
//	locks, err := postgres.New(pool, postgres.Options{SyncStandby: true}) // or NoStandby, if none is ever promoted
//	token, err := postgres.LockTx(ctx, tx, "invoices/42")                  // in the transaction that writes
//
// A lease is one round trip, and so is its release. A dead holder's lease is free when its TTL ends. Processes that
// wait are notified, in order of arrival. Leases can be exclusive, shared, or one of n slots. Guard
// the writes with the token (package fencing/pgfence). LockTx needs no guard.
//
// One name is one lock, whichever way it is taken: leases, session locks and LockTx of a name exclude each
// other, and their tokens are in one order. Each way has its own queue: a transaction or a session may
// overtake those who wait for a lease, and where several keep a name busy a lease may wait for as long as they do. Who waits behind a lock of another way looks ten times a second. Inspect, List
// and Break are about the locks of one way. A slot is the exception: it does not keep out those who share the name in a transaction
// or session and were there before it. Use a name in one kind.
//
// # Guarantees
//
// Leases: at most one holder at a time, also through a crash of the server. Grants
// and renewals are on disk before they count, even in sessions that run with
// synchronous_commit off. So are tokens, and they increase through a crash. A grant has
// 1,024 of them, so they leave gaps. A failover to an asynchronous standby, a restored
// backup and fsync=off can hand a held lock to a second holder and send tokens back. A
// failover to a synchronous standby ([Options].SyncStandby) cannot, unless the standby's
// clock is ahead: then there may be a second holder, with tokens in order. A release waits
// for no disk: if the server crashes just then, the lock may stay, held by nobody, until
// its lease ends. One before the end of [locker.WithMinHold] does wait, like a grant: until
// then the lock stays in the database, held by nobody, whatever becomes of the process and
// the server.
//
// Waiters of different Lockers are served in order of arrival. Goroutines of one Locker
// pass the lock on to each other in memory, up to 1,024 times and for 25 ms at most, before
// it goes to another process.
//
// Each of those who share a lease, or have slots, has a row, an end and a number of its own:
// one that dies, unlocks or is renewed changes nothing for the others. All kinds wait in one
// queue, and neighbours that share go in together. A writer that dies while it waits for
// readers keeps those behind it out for half a second for each that is before them in the
// queue. If it is only cut off, that is 15 seconds more.
//
// Session locks end with the server or the connection, so a crash of the server, a
// failover, or a connection that ends on the server's side alone can hand a held lock
// to a second holder before the first has heard of it ([NewSession]). Their tokens are
// on disk before they count, too: one lock in 32 waits for that, and with SyncStandby every lock waits for the standby.
// Waiters stand in the server's own queue, and leave it for a moment every 20 seconds or so: the order
// is that of arrival in between. They can be shared, and there are no slots.
//
// Locks inside a transaction assume nothing ([LockTx], [LockTxShared]). Between them and leases of the same
// name counts what leases assume.
//
// A request for a lease may reach the server after its attempt was given up and cleaned
// up. For a minute and a TTL of the server's clock it is refused. One that arrives even
// later, or after that clock has stepped forward by as much, leaves a lease behind, which
// ends with its TTL. If a clean-up could not be confirmed, the error is
// [locker.ErrOutcomeUnknown].
//
// # Losing a lock
//
// A lease is lost when it ends unrenewed, or when a renewal finds the row gone or
// changed: after a third of the TTL at the latest. Renewals have a connection of their
// own, so no lock is lost when queries of the application take all connections of the pool.
// One statement renews locks of all kinds. If the role may have no other connection, renewals share the pool. Of the waiters
// only the one whose turn it is gets a NOTIFY. A waiter is skipped at once if its
// connection is gone, and after half a second if it is paused. If a notification is lost,
// that costs at most what was left of the holder's lease. While the connection for
// notifications cannot be opened again, waiters look four times a second. If a pooler is in
// between, the role may have no other connection, or the server's queue of notifications is half
// full (pg_notification_queue_usage: somebody listens inside of an open transaction), waiters
// look ten times a second instead ([Options].Poll).
//
// A session lock is lost when its connection breaks, which its holder hears at once, or
// when the server has not answered for a TTL. A lock that could not be given back ends
// with its connection. We ask the server over the pool to end that connection, as the role that has logged in. The
// server also ends it by itself if nothing has arrived on it for a second more than the TTL.
// After Unlock the process keeps a session lock for the rest of [locker.WithMinHold]: it is
// free early if the process ends, or the connection.
//
// A pool asks a connection that was idle for over a second for a sign of life before
// it hands it out. If the network loses the answer, the release is not sent. It is
// tried again for ten seconds; if the network is still silent, the lock stays until its
// lease ends. A pool whose Config.ShouldPing returns false sends the release at once.
//
// # Clocks
//
// The lease ends by the database server's clock, read while the request is
// carried out (clock_timestamp). Validity counts on the holder's clock of elapsed
// time, read before the request was sent, and ends a hundredth of the TTL and
// 2 ms early. A standby has a lease as the time of its end. If it takes over and its
// clock is ahead of the primary's by more than that hundredth and 2 ms, it ends the lease
// while the holder believes. So exclusion assumes clocks that agree (AgreedClocks), with
// [Options].SyncStandby too, and not with NoStandby: keep them by NTP. Session
// locks have no lease: each side measures for itself how long the connection has been
// silent.
//
// # Requirements
//
// PostgreSQL 15 or later (tested with 15), a database encoded in UTF8 (and
// sessions whose client_encoding is UTF8 too), and the isolation level read
// committed as the default. Each statement takes one round trip. On a connection that is
// used often they are prepared, if it leads to the server directly and the pool's
// settings allow it. On all others they are sent in full, so any version of PgBouncer
// works, in transaction and statement mode too. They find the schema through the
// search path.
//
// All connections go through the pool's hooks (BeforeConnect, AfterConnect,
// PrepareConn or BeforeAcquire). Connections with session locks, and those that listen, do
// so once, in a context that has none of a caller's values. So a hook must not choose the
// role or the search path by the caller. If the pool has several hosts, let it choose the
// primary (target_session_attrs=read-write): a standby refuses locks.
//
// Tables whose names begin with lockstile_ belong to the locks, and so do the advisory
// locks whose first of two keys is 1819239275, 1819239276 or 1819239277.
//
// A lease costs the server one transaction that is synced to disk, and so does a round
// of renewals. Nobody waits for the disk to find a lock taken, to queue for it or to give
// it back after the end of its [locker.WithMinHold]. If there is a synchronous standby, grants and renewals wait for it. A Locker
// has up to two connections beside the pool: one while somebody waits, and one while
// there are renewals. A SessionLocker has a connection of its own for each lock that it holds or waits for, 32 at
// most unless the pool may have more, and keeps them for the next lock for a while. It uses the pool for Inspect, List, Break and
// EnsureSchema, and to have a connection ended.
//
// A lease leaves dead rows behind, as any update does. The server removes them unless an
// old snapshot could see them: a transaction or statement that goes on for hours, one that
// is prepared, a replication slot that nobody reads, a standby with hot_standby_feedback.
// Until that ends, each lock of a name that is often locked reads more pages: two at
// first, hundreds after some thousand locks. "locker doctor" names what keeps the oldest
// snapshot.
package postgres
