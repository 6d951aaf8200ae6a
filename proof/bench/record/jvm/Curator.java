import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.RetryForever;

/**
 * A process that uses Apache Curator's locks. It carries out the verbs that it reads, one a
 * line, and answers each with a line. Arguments: HOST:PORT and the session timeout in
 * milliseconds.
 */
class Curator {
    private final CuratorFramework client;
    private final Map<String, InterProcessMutex> mutexes = new HashMap<>();
    private final Map<String, InterProcessReadWriteLock> readWrite = new HashMap<>();
    private final Map<String, LeaderLatch> latches = new HashMap<>();
    private volatile String state = "NONE";

    private Curator(String address, int session) {
        client = CuratorFrameworkFactory.newClient(address, session, session, new RetryForever(50));
        client.getConnectionStateListenable().addListener((c, now) -> state = now.name());
        client.start();
    }

    private String carryOut(String verb, String path, String argument) throws Exception {
        switch (verb) {
            case "lock":
                mutex(path).acquire();
                return "locked";
            case "believes-lock":
                return yes(mutex(path).isAcquiredInThisProcess());
            case "write":
                readWrite(path).writeLock().acquire();
                return "locked";
            case "unwrite":
                readWrite(path).writeLock().release();
                return "unlocked";
            case "read":
                readWrite(path).readLock().acquire();
                return "locked";
            case "believes-read":
                return yes(readWrite(path).readLock().isAcquiredInThisProcess());
            case "believes-write":
                return yes(readWrite(path).writeLock().isAcquiredInThisProcess());
            case "slot":
                var slots = new InterProcessSemaphoreV2(client, path, Integer.parseInt(argument));
                return slots.acquire(10, TimeUnit.SECONDS) == null ? "taken" : "locked";
            case "stand":
                latches.put(path, new LeaderLatch(client, path));
                latches.get(path).start();
                return "stands";
            case "believes-leader":
                return yes(latches.get(path).hasLeadership());
            case "state":
                return state;
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    private InterProcessMutex mutex(String path) {
        return mutexes.computeIfAbsent(path, p -> new InterProcessMutex(client, p));
    }

    private InterProcessReadWriteLock readWrite(String path) {
        return readWrite.computeIfAbsent(path, p -> new InterProcessReadWriteLock(client, p));
    }

    private static String yes(boolean b) {
        return b ? "yes" : "no";
    }

    public static void main(String[] args) throws Exception {
        var process = new Curator(args[0], Integer.parseInt(args[1]));
        var verbs = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = verbs.readLine()) != null; ) {
            String[] words = line.split(" ");
            System.out.println("> " + process.carryOut(words[0], words.length > 1 ? words[1] : "", words.length > 2 ? words[2] : ""));
        }
        System.exit(0);
    }
}
