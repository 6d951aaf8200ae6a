// Package postgres implements [locker.Locker] in a PostgreSQL database, in three
// ways. [New] keeps leases in a table: the usual choice, and the one that works
// through a connection pooler. [NewSession] takes advisory locks, which have no
// lease, on connections of its own. [LockTx] locks inside a transaction of the
// caller's: where lock and data are in one database, nothing is safer.
//
// All draw their tokens from the same sequence of the database. Before first use
// it needs the [Schema].
//
// # Guarantees
//
// Leases: at most one holder at a time, over crashes of the server too: grants
// and renewals are on disk before they count, even in sessions that run with
// synchronous_commit off. So are tokens, 1,024 for each grant, so they increase over a
// crash, and leave gaps. A failover to an asynchronous standby, a restored backup and
// fsync=off can hand a held lock to a second holder and send tokens back; a failover to a
// synchronous standby cannot ([Options].SyncStandby). Waiters of
// different Lockers are served in order of arrival; goroutines of one Locker pass the
// lock on to each other in memory, up to 1,024 times and for 25 ms at most, before it
// goes to another process. A release, in contrast, waits for no disk: if the server
// crashes just then, the lock may stay, held by nobody, until its lease ends.
//
// Session locks end with the server or the connection, so a crash of the server, a
// failover, or a connection that ends on the server's side alone can hand a held lock
// to a second holder before the first has heard of it ([NewSession]). Their tokens are
// on disk before they count, too: one lock in 32 waits for that. Waiters stand in the
// server's own queue.
//
// Locks inside a transaction lean on nothing ([LockTx]).
//
// A request that is delayed until after its attempt was given up and cleaned up
// is refused for a minute and a TTL. One that arrives even later leaves a lease
// behind that ends with its TTL. What could not be confirmed to be gone is
// reported as [locker.ErrOutcomeUnknown].
//
// # Losing a lock
//
// A lease is lost when it ends unrenewed, or when a renewal finds the row gone or
// changed: after a third of the TTL at the latest. Renewals have a connection of their
// own, so the application's queries, which may take all connections of the pool, lose
// no lock; where the role may have no other connection, they share the pool. Waiters
// are told by NOTIFY, the one whose turn it is alone. One that is dead is passed over
// at once when its connection is gone, and after half a second when it is paused; a
// notification that is lost costs at most what was left of the holder's lease. Where a
// pooler is in between, waiters look ten times a second instead ([Options].Poll).
//
// A session lock is lost when its connection breaks, which is told within a quarter of a
// second, or when the server has not answered for a TTL. One that could not be given
// back ends with its connection: the server is asked to end it, and ends it by itself
// when nothing has been heard on it for a second more than the longest TTL there.
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
// 2 ms early. A standby that takes over must have a clock that agrees. Session
// locks know no lease while their connection is heard of; its silence is measured
// by each side for itself.
//
// # Requirements
//
// PostgreSQL 15 or later (tested with 15), a database encoded in UTF8 (and
// sessions whose client_encoding is UTF8 too), and the isolation level read
// committed as the default. Each statement takes one round
// trip. A connection that is used again has them prepared, if it leads to the
// server directly and the pool's settings allow it; all others are sent in full,
// so that PgBouncer of any version will do, in transaction mode too. They find the
// schema through the search path. Tables whose names begin with lockstile_ are the
// locks' own, and so are the advisory locks whose first of two keys is 1819239275,
// 1819239276 or 1819239277.
//
// A lease costs the server one transaction that is synced to disk, and so does a round
// of renewals. Nobody waits for the disk to find a lock taken, to queue for it or to give
// it back. Where there is a synchronous standby, grants and renewals wait for it. A Locker
// has up to two connections beside the pool: one while somebody waits, and one while
// there are renewals. A SessionLocker uses the pool only to look on. It has one connection
// of its own, and one for each name that it waits for or has waited for, 16 of those at
// most.
package postgres
