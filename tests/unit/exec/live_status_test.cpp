// The live document: what it counts, which clients it names, and that no client can make it large.
#include "proxy/exec/admin/live_status.h"
#include "proxy/base/log.h"
#include "proxy/exec/commands/slow_log.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "tests/support/fake_gateway.h"

namespace spillway::exec {

namespace {

constexpr const char* three_chunks = R"(
routing:
  shards:
    - {name: s0, uri: "mongodb://127.0.0.1:27018/"}
    - {name: s1, uri: "mongodb://127.0.0.1:27019/"}
  collections:
    - ns: town.people
      key: {a: 1}
      chunks:
        - {min: {a: {$minKey: 1}}, max: {a: 0}, shard: s0}
        - {min: {a: 0}, max: {a: 10}, shard: s1}
        - {min: {a: 10}, max: {a: {$maxKey: 1}}, shard: s0}
)";

Result<BsonDoc> no_shard_to_ask(std::uint16_t, DocView) {
  return Error(ErrorCode::internal_error, "no shard is asked");
}

struct Watched {
  test::FakeWorker worker{test::routing_of(three_chunks), no_shard_to_ask};

  BsonDoc look(bool details = true) {
    std::vector<LiveFacts> facts;
    facts.push_back(look_at_live(worker.context, details));
    return live_status(worker.shared, std::move(facts), details);
  }
  void add_cursor(std::string_view command, std::string name) {
    auto cursor = std::make_unique<ClusterCursor>();
    const BsonDoc body = test::doc(command);
    cursor->originating_command.assign(reinterpret_cast<const char*>(body.view().data()), body.size());
    cursor->ns = name;
    cursor->created_ms = wall_clock_ms() - 5'000;
    auto client = std::make_shared<CursorClient>();
    client->address = "10.0.0.9:1";
    client->application = name;
    cursor->client = std::move(client);
    worker.shared.cursors.insert(std::move(cursor), steady_ns());
  }
};

DocView row(DocView document, std::string_view array, std::string_view index) {
  return document[array].as_document()[index].as_document();
}

}  // namespace

TEST_CASE("a command's shape has its fields and none of its values", "[live]") {
  const auto shape = [](std::string_view json) { return shape_of(test::doc(json).view()); };
  CHECK(shape("{'find': 'people', 'filter': {'name': 'Ann', 'age': {'$gt': 7}}, 'lsid': {'id': 1}, '$db': 'town'}") ==
        "{find: ?, filter: {name: ?, age: {$gt: ?}}}");
  CHECK(shape("{'find': 'people', 'filter': {'_id': {'$in': [1, 2, 3]}}}") ==
        "{find: ?, filter: {_id: {$in: [?, …]}}}");
  CHECK(shape("{'aggregate': 'p', 'pipeline': [{'$match': {'a': 1}}, {'$group': {'_id': '$b'}}]}") ==
        "{aggregate: ?, pipeline: [{$match: {a: ?}}, {$group: {_id: ?}}]}");
  CHECK(shape("{'createUser': 'ann', 'pwd': 'secret'}") == "createUser");
  CHECK(shape("{'a': {'b': {'c': {'d': {'e': {'f': {'g': {'h': 1}}}}}}}}") == "{a: {b: {c: {d: {e: {f: {g: ?}}}}}}}");
  const std::string wide = shape("{'" + std::string(300, 'x') + "': 1, 'b': 2}");
  CHECK(wide.size() <= 200);
  CHECK(wide.ends_with("…"));
}

TEST_CASE("chunks are counted by their shard", "[live]") {
  Watched watched;
  const BsonDoc status = watched.look();
  CHECK(row(status, "shards", "0")["name"].as_string() == "s0");
  CHECK(row(status, "shards", "0")["chunks"].to_int64() == 2);
  CHECK(row(status, "shards", "1")["chunks"].to_int64() == 1);
  // A shard that left does not move the others' figures.
  watched.worker.gateway.states()[0].retired = true;
  const BsonDoc less = watched.look();
  CHECK(row(less, "shards", "0")["name"].as_string() == "s1");
  CHECK(row(less, "shards", "0")["chunks"].to_int64() == 1);
  CHECK(row(row(less, "shards", "0"), "hosts", "0")["is"].as_string() == "primary");
}

TEST_CASE("times inside meet the times of the shards in a map", "[live]") {
  Watched watched;
  const auto& times = watched.worker.context.inside_times;
  times->add(OperationClass::point, std::chrono::microseconds(40), std::chrono::microseconds(900));
  times->add(OperationClass::point, std::chrono::hours(1), std::chrono::microseconds(0));
  const BsonDoc status = watched.look(false);
  const DocView map = status.view()["map"].as_document();
  CHECK(map.count() == TimeMap::cells);
  CHECK(map[std::to_string(6 * 20 + 10)].to_int64() == 1);  // below 64 us, below 1,024 us
  CHECK(map[std::to_string(19 * 20)].to_int64() == 1);
  CHECK(status.view().find_path("inside.point.count").to_int64() == 2);
}

TEST_CASE("a slow operation's line shows the beginning of a long error") {
  Watched watched;
  const test::FakeRequest find("{'find': 'people', '$db': 'town'}");
  const Error failure(ErrorCode::bad_value, std::string(100'000, 'x'));
  log_if_slow(watched.worker.context, Client(), find.request, std::chrono::seconds(1), nullptr, &failure);
  const std::string line = log::recent().lines.back();
  CHECK(line.find("xxx") != line.npos);
  CHECK(line.size() < 5'000);
}

TEST_CASE("clients and their commands are told with details alone", "[live]") {
  Watched watched;
  const test::FakeRequest find("{'find': 'people', 'filter': {'a': 'secret'}, '$db': 'town'}");
  Client older, younger, idle;
  older.running = younger.running = &find.request;
  older.running_since = Clock::now() - std::chrono::seconds(9);
  younger.running_since = Clock::now();
  older.application_name = "census";
  older.operation_id = 41;
  watched.worker.context.clients = {&younger, &idle, &older};
  watched.add_cursor("{'find': 'people', 'filter': {'b': 'secret'}}", "town.people");
  const Error failure(ErrorCode::host_unreachable, "away");
  for (const int took : {150, 250})
    log_if_slow(watched.worker.context, older, find.request, std::chrono::milliseconds(took), nullptr, &failure);
  log_if_slow(watched.worker.context, older, find.request, std::chrono::milliseconds(50), nullptr, &failure);
  const BsonDoc status = watched.look();
  CHECK(status.view()["operationsByAge"].as_document().count() == 2);
  CHECK(row(status, "operationsByAge", "0")["opid"].to_int64() == 41);
  CHECK(row(status, "cursorsByAge", "0")["id"].is_string());
  CHECK_FALSE(status.view()["authorization"].truthy());
  const test::FakeRequest more("{'getMore': {'$numberLong': '7'}, 'collection': 'people', '$db': 'town'}");
  CHECK(more.request.ns() == "town.people");
  CHECK(row(status, "operationsByAge", "0")["application"].as_string() == "census");
  CHECK(row(status, "operationsByAge", "0")["ageMicros"].to_int64() >= 9'000'000);
  CHECK(row(status, "operationsByAge", "0")["ns"].as_string() == "town.people");
  CHECK(row(status, "operationsByAge", "0")["shape"].as_string() == "{find: ?, filter: {a: ?}}");
  const DocView slow = status.view().find_path("slowShapes.shapes").as_document().first().as_document();
  CHECK(slow["ns"].as_string() == "town.people");
  CHECK(slow["shape"].as_string() == "{find: ?, filter: {a: ?}}");
  CHECK(slow["count"].to_int64() == 2);
  CHECK(slow["failed"].to_int64() == 2);
  CHECK(slow["totalMicros"].to_int64() == 400'000);
  CHECK(slow["maxMicros"].to_int64() == 250'000);
  CHECK(row(status, "cursorsByAge", "0")["shape"].as_string() == "{find: ?, filter: {b: ?}}");
  CHECK(row(status, "cursorsByAge", "0")["ageMillis"].to_int64() >= 5'000);
  CHECK(to_json(status.view(), live_bytes_max).find("secret") == std::string::npos);
  const std::string open = to_json(watched.look(false).view(), live_bytes_max);
  for (const char* name : {"census", "people", "10.0.0.9"}) CHECK(open.find(name) == std::string::npos);
}

TEST_CASE("whatever clients call themselves, the document stays text of bounded size", "[live]") {
  Watched watched;
  std::string nasty = "\"\\\x01\xff\xc3";
  while (nasty.size() < 5'000) nasty += "\"\\";
  test::FakeRequest find("{'find': 'people', '$db': 'town'}");
  find.request.db = nasty;
  std::vector<Client> clients(2 * live_rows_max);
  for (Client& client : clients) {
    client.running = &find.request;
    client.peer = client.application_name = nasty;
    watched.worker.context.clients.insert(&client);
    watched.add_cursor("{'find': '1'}", nasty + std::to_string(&client - clients.data()));
  }
  for (std::size_t i = 0; i < 2 * live_rows_max; ++i) {
    SlowShape slow;
    slow.ns = nasty;
    slow.shape = std::to_string(i) + nasty;
    watched.worker.shared.slow_shapes.add(slow);
  }
  for (int i = 0; i < 20; ++i) log::warning("{}", std::string(3'000, '"'));
  const BsonDoc status = watched.look();
  CHECK(status.view()["operationsByAge"].as_document().count() == live_rows_max);
  CHECK(status.view()["cursorsByAge"].as_document().count() == live_rows_max);
  const std::size_t most = live_bytes_max + 2 * live_shard_bytes_max;
  const std::string text = to_json(status.view(), 10 * most);
  CHECK(text.size() < most);
  CHECK(status.size() < most);
  const auto read = BsonDoc::from_json(text);
  REQUIRE(read.has_value());
  CHECK(row(*read, "operationsByAge", "0")["application"].as_string().starts_with("\"\\???"));
  CHECK_FALSE(read->view()["warnings"].as_document().empty());
}

}  // namespace spillway::exec
