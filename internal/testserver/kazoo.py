# Carries out the verbs that it reads, on a lock of kazoo's: HOST PATH [PATTERN…]
import sys

from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1])
client.start(timeout=60)
lock = client.Lock(sys.argv[2], extra_lock_patterns=sys.argv[3:])
for verb in sys.stdin:
    if verb.strip() == "unlock":
        lock.release()
        answer = "unlocked"
    else:
        answer = "locked" if lock.acquire(blocking=verb.strip() == "lock") else "taken"
    print("> " + answer, flush=True)
