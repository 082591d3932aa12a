package spillway;

import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.net.InetSocketAddress;

/**
 * A stand-alone document server for tests: mongo-java-server in memory.
 *
 * <p>Arguments: [port], 0 or none for a free one. Prints one line,
 * "javaserver ready: mongodb://HOST:PORT/", when it listens, and ends on SIGTERM or SIGINT.
 */
public final class Main {
  private Main() {}

  public static void main(String[] args) throws InterruptedException {
    int port = args.length > 0 ? Integer.parseInt(args[0]) : 0;
    MongoServer server = new MongoServer(new MemoryBackend());
    server.bind("127.0.0.1", port);
    InetSocketAddress address = server.getLocalAddress();
    Runtime.getRuntime().addShutdownHook(new Thread(server::shutdownNow));
    System.out.println("javaserver ready: mongodb://127.0.0.1:" + address.getPort() + "/");
    System.out.flush();
    Thread.currentThread().join();
  }
}
