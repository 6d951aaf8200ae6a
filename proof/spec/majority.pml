/*
 * Votes of a majority: which kinds of locks can be had that way, as Redlock has the exclusive one?
 *
 * Each of three servers has a lock of the kind by itself. A client has the lock if two of them
 * have granted it theirs. Nothing else goes wrong here: no lease ends, no message is lost, no
 * server forgets.
 *
 *   exclusive          right: two majorities have a server in common, and it grants to one
 *   SHARED             right: whoever excludes the other meets it at that server
 *   SLOTS=2            wrong: three clients have two places. Nobody excludes anybody by
 *                      himself, so no server sees what is wrong
 *
 * Two locks of two names, which are exclusive, are right. That is what the docs advise there.
 * The counterexample is told in the documentation of DistributedLock (github.com/madelson).
 *
 * Bounds: three servers, three clients, each of which asks the servers in any order, gives up or
 * has the lock, gives everything back and begins again, for ever.
 */
#ifndef SLOTS
#define SLOTS 1
#endif
#define NODES 3
#define CLIENTS 3
#define MAJORITY 2

mtype = { reader, holder }; /* a reader shares its lock, a holder does not, or counts */

byte sharing[NODES]; /* how many have been granted each server's lock, */
byte alone[NODES];   /* and how many of these not shared */

/* Who believes that it has the lock. */
byte readers, holders;
bool too_many_holders;

#define free(n) (alone[n] < SLOTS && (kind == reader || sharing[n] == 0))

inline ask(n) {
	asked[n] = true;
	if
	:: free(n) ->
		votes++; granted[n] = true;
		if
		:: kind == reader -> sharing[n]++
		:: else -> alone[n]++
		fi;
		printf("server %d grants its lock to %e %d\n", n, kind, _pid)
	:: else -> printf("server %d is taken, it tells %e %d\n", n, kind, _pid)
	fi
}

inline believe() {
	if
	:: kind == reader -> readers++
	:: else -> holders++
	fi;
	printf("%e %d has the lock\n", kind, _pid);
	too_many_holders = holders > SLOTS || holders > 0 && readers > 0;
	assert(!too_many_holders)
}

inline doubt() {
	if
	:: kind == reader -> readers--
	:: else -> holders--
	fi;
	printf("%e %d unlocks\n", kind, _pid)
}

inline give_back(n) {
	if
	:: granted[n] && kind == reader -> sharing[n]--
	:: granted[n] && kind == holder -> alone[n]--
	:: else
	fi;
	granted[n] = false; asked[n] = false;
	printf("server %d has its lock back from %e %d\n", n, kind, _pid)
}

active [CLIENTS] proctype Client() {
	mtype kind;
	bool asked[NODES], granted[NODES];
	byte votes;
	do
	:: true ->
		if
		:: kind = holder
#ifdef SHARED
		:: kind = reader
#endif
		fi;
		do
		:: d_step { !asked[0] -> ask(0) }
		:: d_step { !asked[1] -> ask(1) }
		:: d_step { !asked[2] -> ask(2) }
		:: d_step { votes >= MAJORITY -> believe() }; d_step { doubt(); give_back(0) }; break
		:: d_step { votes < MAJORITY -> give_back(0) }; break
		od;
		atomic { give_back(1) }; /* each server by itself: others get its lock before they get the next one */
		d_step { give_back(2); votes = 0; kind = 0 }
	:: break
	od
}
