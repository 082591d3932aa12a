// A routing table that is replaced while clients work.
#include <pthread.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "proxy/base/log.h"
#include "proxy/server/reload/reload.h"
#include "tests/sim/sim_support.h"
#include "tests/support/certificates.h"
#include "tests/support/routing_text.h"

namespace spillway::test {

namespace {

constexpr std::string_view insert =
    R"({"insert": "fresh", "documents": [{"_id": 5}, {"_id": 15}, {"_id": 25}], "$db": "app"})";

std::shared_ptr<const catalog::RoutingSnapshot> table_with(SimWorld& world, const std::string& collections) {
  std::string yaml = "routing:\n  shards:\n";
  for (const catalog::Shard& shard : world.shared().routing->shards()) {
    yaml += fmt::format("    - {{name: {}, uri: \"{}\"}}\n", shard.name, shard.uri);
  }
  auto table = test::load_routing(yaml + "  collections:\n" + collections, "reload");
  REQUIRE(table.has_value());
  return *table;
}

void use(SimWorld& world, const std::shared_ptr<const catalog::RoutingSnapshot>& table) {
  for (std::size_t i = 0; i < world.worker_count(); ++i) world.worker(i).use_table(table);
}

// SIGHUP, with what the file holds then; the first configuration has everything at its default.
class Reloading {
 public:
  explicit Reloading(SimWorld& world)
      : world_(world),
        reload_(world.main_loop(), world.shared(), workers_of(world), {}, world.shared().routing,
                {.load = [this] { return next; },
                 .ended = [this](const std::string& outcome) { outcome_ = outcome; },
                 .drive = Loop::Drive::manual}) {
    next.routing = world.shared().routing;
  }

  void request() {
    outcome_.clear();
    reload_.request();
  }
  const std::string& wait() {
    CHECK(world_.run_until([this] { return !outcome_.empty(); }, minutes(1)));
    return outcome_;
  }
  const std::string& run() {
    request();
    return wait();
  }

  LoadResult next;

 private:
  static std::vector<server::Worker*> workers_of(SimWorld& world) {
    std::vector<server::Worker*> workers;
    for (std::size_t i = 0; i < world.worker_count(); ++i) workers.push_back(&world.worker(i));
    return workers;
  }

  SimWorld& world_;
  std::string outcome_;
  server::Reload reload_;
};

std::string hashed_by(const std::string& field) {
  return fmt::format("    - {{ns: app.fresh, key: {{{}: hashed}}}}\n", field);
}

}  // namespace

TEST_CASE("a reload that is refused keeps nothing of its table on the shards") {
  SimWorld world(sharded_world(3, 20));
  Reloading reloading(world);
  reloading.next.routing = table_with(world, ranged_collection("app.docs", 3, 20) + hashed_by("k"));
  reloading.next.config.system_log.destination = LogDestination::file;
  reloading.next.config.system_log.path = "/dev/null/no.log";
  CHECK_THAT(reloading.run(), Catch::Contains("reload refused") && Catch::Contains("systemLog: "));
  for (std::size_t i = 0; i < 3; ++i) CHECK(world.shard(i).stored("spillway.routing").empty());
  // Corrected, in more than the path.
  reloading.next.config = {};
  reloading.next.routing = table_with(world, ranged_collection("app.docs", 3, 20) + hashed_by("other"));
  CHECK_THAT(reloading.run(), Catch::StartsWith("reloaded: routing of 2 collections"));
  CHECK(world.shard(0).stored("spillway.routing").size() == 2);
  // What a shard keeps and is no longer used can be taken away: the refusal says how.
  reloading.next.routing = world.shared().routing;
  CHECK_THAT(reloading.run(), Catch::StartsWith("reloaded: "));
  reloading.next.routing = table_with(world, ranged_collection("app.docs", 3, 20) + hashed_by("k"));
  CHECK_THAT(reloading.run(), Catch::Contains("reload refused") && Catch::Contains("its shard key was") &&
                                  Catch::Contains("delete {_id: \"app.fresh\"} from spillway.routing on shard shard0"));
}

TEST_CASE("a reload is refused when it gets no thread") {
  SimWorld world(sharded_world(1, 20));
  std::string outcome;
  server::Reload reload(world.main_loop(), world.shared(), {&world.worker(0)}, {}, world.shared().routing,
                        {.load = [] { return LoadResult(); },
                         .ended = [&](const std::string& said) { outcome = said; }});
  // No address space is that large.
  pthread_attr_t before, huge;
  REQUIRE(::pthread_getattr_default_np(&before) == 0);
  REQUIRE(::pthread_attr_init(&huge) == 0);
  REQUIRE(::pthread_attr_setstacksize(&huge, std::size_t{1} << 60) == 0);
  REQUIRE(::pthread_setattr_default_np(&huge) == 0);
  CHECK_NOTHROW(reload.request());
  REQUIRE(::pthread_setattr_default_np(&before) == 0);
  ::pthread_attr_destroy(&huge);
  ::pthread_attr_destroy(&before);
  CHECK_THAT(outcome, Catch::Contains("reload refused, the old configuration stays: no thread can be started"));
}

TEST_CASE("a log level that was set by command stays while its key does") {
  SimWorld world({});
  auto client = world.client();
  Reloading reloading(world);
  constexpr std::string_view get_level = R"({"getParameter": 1, "logLevel": 1, "$db": "admin"})";
  CHECK(is_ok(call(world, *client, R"({"setParameter": 1, "logLevel": 2, "$db": "admin"})")));
  CHECK(log::enabled(log::Level::debug));
  reloading.next.config.system_log.rotation = LogRotation::reopen;
  CHECK(reloading.run() == "reloaded: systemLog.logRotate");
  CHECK(log::enabled(log::Level::debug));
  CHECK(call(world, *client, get_level).view()["logLevel"].to_int64() == 2);
  reloading.next.config.parameters.log_level = 1;
  CHECK(reloading.run() == "reloaded: systemLog.verbosity");
  CHECK(log::enabled(log::Level::debug));
  CHECK(call(world, *client, get_level).view()["logLevel"].to_int64() == 1);
  reloading.next.config.parameters.log_level = 0;
  CHECK(reloading.run() == "reloaded: systemLog.verbosity");
  CHECK_FALSE(log::enabled(log::Level::debug));
}

TEST_CASE("setParameter knows the keys that the table says it may change, with their ranges") {
  SimWorld world({});
  auto client = world.client();
  const auto set = [&](const char* what) {
    return call(world, *client, fmt::format(R"({{"setParameter": 1, {}, "$db": "admin"}})", what));
  };
  const auto says = [&](const char* what) { return std::string(set(what).view()["errmsg"].as_string()); };
  CHECK(set(R"("cursorTimeoutMillis": 5000.0)").view()["was"].to_int64() == 600'000);
  CHECK(says(R"("cursorTimeoutMillis": -1)") ==
        "cursorTimeoutMillis must be an integer from 0 to 31622400000, not \"-1\"");
  CHECK(says(R"("cursorTimeoutMillis": 1.5)") ==
        "cursorTimeoutMillis must be an integer from 0 to 31622400000, not \"1.5\"");
  CHECK(set(R"("enableTimeoutOfInactiveSessionCursors": 0)").view()["was"].as_bool());
  CHECK(says(R"("spliceReplies": "sometimes")") == "spliceReplies must be auto, always or never, not \"sometimes\"");
  CHECK(is_ok(set(R"("spliceReplies": "never")")));
  CHECK_THAT(says(R"("cursorTimeoutMilis": 1)"), Catch::Contains("attempted to set unrecognized parameter"));
  CHECK_THAT(says(R"("enableTestCommands": 1)"), Catch::Contains("not allowed to change [enableTestCommands]"));
  CHECK_THAT(says(R"("slowOpThresholdMs": 1)"), Catch::Contains("attempted to set unrecognized parameter"));
  const BsonDoc all = call(world, *client, R"({"getParameter": "*", "$db": "admin"})");
  CHECK(all.view()["cursorTimeoutMillis"].to_int64() == 5'000);
  CHECK_FALSE(all.view()["enableTimeoutOfInactiveSessionCursors"].as_bool());
  CHECK(all.view()["spliceReplies"].as_string() == "never");
  CHECK(all.view()["memoryAllocator"].as_string() == "auto");
  CHECK(all.view()["logLevel"].to_int64() == 0);
  CHECK(all.view()["authSchemaVersion"].exists());
  CHECK(world.shared().parameters.splice_replies.load() == SpliceReplies::never);
}

TEST_CASE("a reload says which certificates and passwords it has read") {
  Certificates certificates;
  SimWorld world({});
  Reloading reloading(world);
  CHECK(reloading.run() == "reloaded: nothing has changed");
  TlsConfig& tls = reloading.next.config.net.tls;
  tls.mode = TlsMode::allow;
  tls.certificate_key_file = certificates.server();
  CHECK_THAT(reloading.run(), Catch::StartsWith("reloaded: net.tls.mode, net.tls.certificateKeyFile; certificates (" +
                                                certificates.server() + ": CN=") &&
                                  Catch::EndsWith(" UTC) were read anew"));
  const auto content = [](const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  };
  std::ofstream(certificates.server(), std::ios::trunc) << content(certificates.elsewhere());
  CHECK_THAT(reloading.run(), Catch::StartsWith("reloaded: certificates (" + certificates.server() + ": ") &&
                                  Catch::Contains("example.org") && Catch::EndsWith(" UTC) were read anew"));
}

TEST_CASE("TLS that a reload turns off is still spoken on connections that have begun") {
  Certificates certificates;
  SimWorld world({});
  Reloading reloading(world);
  TlsConfig& tls = reloading.next.config.net.tls;
  tls.mode = TlsMode::allow;
  tls.certificate_key_file = certificates.server();
  CHECK_THAT(reloading.run(), Catch::StartsWith("reloaded: net.tls.mode"));
  auto client = world.client();
  world.run_for(seconds(1));
  tls.mode = TlsMode::disabled;
  CHECK_THAT(reloading.run(), Catch::StartsWith("reloaded: net.tls.mode"));
  CHECK(is_ok(call(world, *client, R"({"ping": 1, "$db": "admin"})")));
}

TEST_CASE("documents that arrive while a reload checks are not lost sight of") {
  SimWorld world(sharded_world(3, 20));
  auto client = world.client();
  world.shard(0).delay = seconds(2);
  Reloading reloading(world);
  reloading.next.routing =
      table_with(world, ranged_collection("app.docs", 3, 20) + ranged_collection("app.fresh", 3, 10));
  reloading.request();
  // The collection was empty; the shard is about to keep the last of the new table.
  REQUIRE(world.run_until([&] { return world.shard(0).seen("insert") == 2; }, minutes(1)));
  const auto write = start(world, *client, json(insert));
  CHECK_THAT(reloading.wait(), Catch::Contains("reload refused") &&
                                   Catch::Contains("app.fresh has documents on shard shard0"));
  REQUIRE(write->done);
  CHECK(is_ok(*write->reply));
  world.shard(0).delay = {};
  CHECK(batch_of(call(world, *client, R"({"find": "fresh", "filter": {"_id": 15}, "$db": "app"})")).size() == 1);
}

TEST_CASE("what commands wrote with the old table is looked for when they have ended") {
  const bool hidden = GENERATE(false, true);
  SimWorld world(two_workers(3, 20));
  auto client = world.client(1);
  call(world, *client, R"({"find": "fresh", "$db": "app"})");  // has a connection
  FaultOptions slow;
  slow.latency_min = slow.latency_max = seconds(3);
  world.network(1).set_faults(slow);
  const auto write = start(
      world, *client, hidden ? json(insert) : json(R"({"insert": "fresh", "documents": [{"_id": 5}], "$db": "app"})"));
  // The router has it, no shard does.
  world.run_for(milliseconds(3500));
  REQUIRE(world.shard(0).stored("app.fresh").empty());
  Reloading reloading(world);
  reloading.next.routing =
      table_with(world, ranged_collection("app.docs", 3, 20) + ranged_collection("app.fresh", 3, 10));
  const std::string outcome = reloading.run();
  CHECK(world.shard(0).stored("app.fresh").size() == (hidden ? 3 : 1));
  CHECK_THAT(outcome, Catch::StartsWith("reloaded: routing of 2 collections"));
  CHECK((outcome.find("documents are out of sight of app.fresh") != std::string::npos) == hidden);
  const log::Recent recent = log::recent();
  const bool told = std::any_of(recent.lines.end() - 3, recent.lines.end(), [](const std::string& line) {
    return line.find("app.fresh has documents on shard shard0 that clients do not find") != std::string::npos;
  });
  CHECK(told == hidden);
  CHECK(world.run_until([&] { return write->done; }, minutes(1)));  // its answer is under way
  world.network(1).set_faults({});
}

TEST_CASE("a reload does not wait for ever for commands that began with the old table") {
  SimWorld world(two_workers(3, 20));
  store_documents(world, 20);
  auto client = world.client(1);
  world.shard(2).delay = minutes(5);
  const auto scan = start(world, *client, json(R"({"find": "docs", "sort": {"k": 1}, "$db": "app"})"));
  world.run_for(milliseconds(500));
  world.shard(2).delay = {};
  Reloading reloading(world);
  reloading.next.routing =
      table_with(world, ranged_collection("app.docs", 3, 20) + ranged_collection("app.fresh", 3, 10));
  const TimePoint begun = Clock::now();
  CHECK_THAT(reloading.run(), Catch::StartsWith("reloaded: routing of 2 collections"));
  CHECK(Clock::now() - begun >= seconds(10));
  CHECK(Clock::now() - begun < seconds(11));
  CHECK_FALSE(scan->done);
  world.run_for(minutes(5));
  CHECK(scan->done);
}

TEST_CASE("commands use the table that was there when they began") {
  SimWorld world(two_workers(3, 20));
  store_documents(world, 20);
  auto client = world.client(0);
  for (std::size_t i = 0; i < 3; ++i) world.shard(i).delay = seconds(2);
  // Under way while the table goes: one that merges, one that writes to several shards in turn.
  const auto scan =
      start(world, *client, json(R"({"find": "docs", "sort": {"k": 1}, "batchSize": 1000, "$db": "app"})"));
  auto writer = world.client(1);
  const auto write = start(world, *writer, json(
      R"({"insert": "docs", "documents": [{"_id": 1000}, {"_id": -1000}, {"_id": 1001}], "$db": "app"})"));
  world.run_for(milliseconds(500));
  CHECK_FALSE(scan->done);
  {
    const auto fresh = table_with(world, ranged_collection("app.docs", 3, 20) + ranged_collection("app.fresh", 3, 10));
    use(world, fresh);
  }
  world.run_for(seconds(20));
  for (std::size_t i = 0; i < 3; ++i) world.shard(i).delay = {};
  REQUIRE(scan->done);
  CHECK(batch_of(*scan->reply).size() >= 60);
  REQUIRE(write->done);
  CHECK(is_ok(*write->reply));
  CHECK(write->reply->view()["n"].to_int64() == 3);
  // Those that follow use the new one, on either worker.
  CHECK(is_ok(call(world, *client, insert)));
  for (std::size_t i = 0; i < 3; ++i) CHECK(world.shard(i).stored("app.fresh").size() == 1);
  CHECK(batch_of(call(world, *writer, R"({"find": "fresh", "filter": {"_id": 15}, "$db": "app"})")).size() == 1);
  CHECK(world.shard(2).seen("find") == 1);  // the scan's
  client->close();
  writer->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a cursor outlives the table that it was opened with") {
  SimWorld world(sharded_world(3, 20));
  store_documents(world, 20);
  auto client = world.client();
  BsonDoc reply = call(world, *client, R"({"find": "docs", "batchSize": 5, "$db": "app"})");
  std::size_t documents = batch_of(reply).size();
  while (cursor_id(reply) != 0) {
    use(world, table_with(world, ranged_collection("app.docs", 3, 20)));
    reply = call(world, *client, fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs",
                                                  "batchSize": 7, "$db": "app"}})", cursor_id(reply)));
    REQUIRE(is_ok(reply));
    documents += batch_of(reply).size();
  }
  CHECK(documents == 60);
}

}  // namespace spillway::test
