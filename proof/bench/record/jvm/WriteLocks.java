import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.WriteLock;

/**
 * A process that uses ZooKeeper's own WriteLock. It carries out the verbs that it reads, one
 * a line, and answers each with a line. Arguments: HOST:PORT and the session timeout in
 * milliseconds.
 */
class WriteLocks {
    public static void main(String[] args) throws Exception {
        var client = new ZooKeeper(args[0], Integer.parseInt(args[1]), event -> {});
        Map<String, WriteLock> locks = new HashMap<>();
        var verbs = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = verbs.readLine()) != null; ) {
            String[] words = line.split(" ");
            var lock = locks.computeIfAbsent(words[1], path -> new WriteLock(client, path, null));
            switch (words[0]) {
                case "lock":
                    System.out.println(lock.lock() ? "> locked" : "> waits");
                    break;
                case "believes-lock":
                    System.out.println(lock.isOwner() ? "> yes" : "> no");
                    break;
                case "session":
                    System.out.println("> " + client.getSessionId());
                    break;
                case "unlock":
                    lock.unlock();
                    System.out.println("> unlocked");
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }
}
