package main

const runHelp = `
COMMAND finds the lock's name in LOCKER_NAME and its fencing token in
LOCKER_TOKEN. The token is greater than every earlier one of this name: let the
storage refuse writes with a smaller one. COMMAND also inherits LOCKER_BACKEND,
with any password in it, so that a locker inside COMMAND uses the same store. The
URL of -b is not passed on. To withhold LOCKER_BACKEND, write
  locker run NAME -- env -u LOCKER_BACKEND COMMAND

Shared locks, slots and several names
  With --shared, any number of commands hold the lock at the same time, if all of
  them share it: readers. One without --shared waits for them, and they for it.
  COMMAND finds LOCKER_SHARED_TOKEN and no LOCKER_TOKEN: it opens no write.
  With --slots 3, three commands at most hold the lock at the same time. COMMAND
  finds its slot in LOCKER_SLOT: 0, 1 or 2, and no other holder has the same. All
  must ask for the same NUMBER; else the status is 64.
  "locker help backends" says where there are such locks.
  With several NAMEs, COMMAND runs while all of them are held. They are locked one
  after another in the order of their bytes, whatever their order in the command
  line, so that two commands cannot deadlock; --wait is for all of them
  together. COMMAND finds the names in LOCKER_NAMES, one a line in that order, and
  their tokens in LOCKER_TOKENS, LOCKER_SHARED_TOKENS or LOCKER_SLOTS in the same
  order. LOCKER_NAME, LOCKER_TOKEN and so on are there with one NAME only.

Waiting
  locker waits for a taken lock for ever, unless --wait or --no-wait is given. It
  does not wait for a store that cannot be reached: the status is then 69, after
  five seconds at most. With --wait it asks such a store again every second, until
  DURATION is over. A wrong URL or password ends it at once in any case. Once the
  store has said that the lock is taken, locker goes on waiting while the store
  is silent. At a terminal it says after a second who has the lock.

Cron jobs on several machines
  A job runs once per tick, and quietly, however many machines start it so:
    locker run --no-wait --taken-exit 0 --quiet --min-hold 30s NAME -- COMMAND
  --min-hold matters if COMMAND can take less time than the machines' clocks
  differ by: without it, the machine whose clock is behind would find the lock
  free again. Choose more than that difference, and less than the time between
  two starts. Where the store cannot keep a lock for a process that has ended
  ("local:", ZooKeeper, PostgreSQL with mode=session), locker stays until the time
  is over, and then exits with COMMAND's status. A signal ends that stay: locker
  warns that others may get the lock early, and exits with COMMAND's status.
  Everywhere the lock is free early if locker is killed before COMMAND ends.

Exit status
  It is COMMAND's own, or one of those that "locker help" lists. --taken-exit
  changes the one for a lock that is taken. To tell COMMAND's from locker's, let
  --status-fd write a line with a word and the exit status. The word is "command"
  if the status is COMMAND's own. Otherwise it says what happened: "taken",
  "unavailable", "lost", "not-started", "usage", or "signal" if a signal ended the
  wait. Nothing is written if a flag or an argument is wrong.
    locker run --no-wait --status-fd 3 NAME -- COMMAND 3>why
    read word status <why
    case $word in
    command) echo "COMMAND ended with $status" ;;
    taken)   echo "somebody else is at it" ;;
    '')      echo "wrong usage" ;;
    *)       echo "locker: $word" ;;
    esac
  --quiet leaves out the messages about waiting and about a lock that is taken.
  All others still go to stderr, one a line, each after "locker: ".

A lock that is about to be lost
  If the lock cannot be renewed, COMMAND's process group gets SIGTERM before the
  lock ends, and SIGKILL just before it does. SIGTERM comes a quarter of the TTL
  before the end (on ZooKeeper a quarter of its session), but five seconds at
  most, and with --max-hold a quarter of that at most. If the lock is gone
  already, for example because the machine was suspended, SIGTERM comes at once
  and SIGKILL a second later. Once SIGTERM was sent the exit status is 70,
  whatever becomes of the lock.

Signals and the terminal
  COMMAND runs in a process group of its own. locker passes SIGINT, SIGTERM,
  SIGHUP and SIGQUIT on to the group, and SIGCONT after them, so that a stopped
  process hears them; also SIGUSR1, SIGUSR2, SIGALRM and SIGWINCH. If locker was
  started with SIGHUP or SIGINT ignored (nohup), COMMAND ignores it too. Other
  signals that were ignored (trap '' TERM) are not ignored by COMMAND.
  COMMAND has the terminal from the start if its input and output are terminals,
  otherwise once it asks for it. ^Z stops locker along with it, and the lock may
  be lost meanwhile. Windows has no signals: ^C reaches COMMAND through the
  console. Where COMMAND would get SIGTERM, it is killed there, and what it has
  started goes on.

systemd and containers
  In a systemd service set KillMode=mixed. By default systemd sends SIGTERM to
  every process of a service when it stops. COMMAND would then get it twice, once
  from locker, and some programs take the second for an order to end at once. With
  KillMode=mixed only locker gets it, and passes it on. TimeoutStopSec should be
  longer than COMMAND needs to end: after that time systemd kills both, and the
  lock stays taken until its TTL is over.
  COMMAND inherits NOTIFY_SOCKET, but in a unit with Type=notify systemd listens to
  the main process alone, which is locker: set NotifyAccess=all, or READY=1 from
  COMMAND is dropped and the start of the unit times out.
  As process 1 of a container, locker does what an init process has to: it passes
  signals on, and reaps processes that have lost their parent. No other init is
  needed. Stop the container with SIGTERM, and allow as much time as above.

What the lock does not cover
  Processes that COMMAND leaves in the background go on without the lock when
  COMMAND has ended. A process that leaves the group, or becomes another user's
  (sudo), cannot be ended by locker. If locker itself is killed, COMMAND is killed
  too on Linux, but not what COMMAND has started; on other systems both go on.
  The token protects against all of these.
`
