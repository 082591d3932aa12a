// Java's part of the load: Load URI NAME, until standard input ends. run_replaced says what each program does.
import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoException;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.bson.Document;

public class Load {
  static final int WORKERS = 4;
  static volatile boolean stopping = false;

  static class Result {
    int written = 0;
    final List<List<Long>> finds = new ArrayList<>();
    final List<String> wrong = new ArrayList<>(), errors = new ArrayList<>();
  }

  static void round(MongoCollection<Document> collection, String name, int written, Result into) {
    String key = name + "-" + written;
    collection.insertOne(new Document("_id", key).append("by", name));
    ++into.written;
    long begun = System.currentTimeMillis(), timer = System.nanoTime();
    Document found = collection.find(Filters.eq("_id", key)).first();
    into.finds.add(List.of(begun, (System.nanoTime() - timer) / 1000));
    if (found == null) into.wrong.add(key + " is not found");
    if (written % 20 != 0) return;
    List<Document> all = collection.find(Filters.eq("by", name)).batchSize(50).limit(300).into(new ArrayList<>());
    Set<String> ids = new HashSet<>();
    for (Document one : all) ids.add(one.getString("_id"));
    if (ids.size() != all.size() || all.size() != Math.min(written + 1, 300)) {
      into.wrong.add(name + " has " + (written + 1) + ", " + all.size() + " were read, " + ids.size() + " of them once");
    }
  }

  public static void main(String[] arguments) throws Exception {
    var settings = MongoClientSettings.builder().applyConnectionString(new ConnectionString(arguments[0]))
        .applyToConnectionPoolSettings(pool -> pool.minSize(10)).build();
    List<Result> results = new ArrayList<>();
    try (var client = MongoClients.create(settings)) {
      var collection = client.getDatabase("app").getCollection("load");
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < WORKERS; ++i) {
        String name = arguments[1] + i;
        Result result = new Result();
        results.add(result);
        Thread thread = new Thread(() -> {
          for (int written = 0; !stopping; ++written) {
            try {
              round(collection, name, written, result);
            } catch (MongoException error) {
              String text = error.toString();
              result.errors.add(text.substring(0, Math.min(text.length(), 300)));
            }
          }
        });
        threads.add(thread);
        thread.start();
      }
      System.out.println("begun");
      while (System.in.read() >= 0) {
      }
      stopping = true;
      for (Thread thread : threads) thread.join();
    }
    Result total = new Result();
    for (Result one : results) {
      total.written += one.written;
      total.finds.addAll(one.finds);
      total.wrong.addAll(one.wrong);
      total.errors.addAll(one.errors);
    }
    System.out.println(new Document("written", total.written).append("finds", total.finds)
        .append("wrong", total.wrong).append("errors", total.errors).toJson());
  }
}
