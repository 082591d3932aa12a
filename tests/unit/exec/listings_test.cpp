// Listings that the proxy makes or collects: what they keep is paid for as it comes, and others get their turn
// meanwhile.
#include <fmt/format.h>

#include "proxy/base/time_slice.h"
#include "proxy/exec/commands/command_table.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "tests/support/clock_manual.h"
#include "tests/support/fake_gateway.h"

namespace spillway::exec {
namespace {

using test::doc;
using test::FakeWorker;

// app.orders in `chunks` chunks.
std::string table_of(int chunks) {
  std::string yaml = "routing:\n  shards: [{name: s0, uri: \"mongodb://127.0.0.1:27018/\"}, "
                     "{name: s1, uri: \"mongodb://127.0.0.1:27019/\"}]\n"
                     "  databases: [{name: app, primary: s0}]\n"
                     "  collections:\n    - ns: app.orders\n      key: {n: 1}\n      chunks:\n";
  for (int i = 0; i < chunks; ++i) {
    const std::string min = i == 0 ? "{$minKey: 1}" : std::to_string(i);
    const std::string max = i + 1 == chunks ? "{$maxKey: 1}" : std::to_string(i + 1);
    yaml += fmt::format("        - {{min: {{n: {}}}, max: {{n: {}}}, shard: s{}}}\n", min, max, i % 2);
  }
  return yaml;
}

Result<BsonDoc> nothing(std::uint16_t, DocView) { return doc("{'ok': 1}"); }

BsonDoc run(FakeWorker& worker, Client& client, std::string_view json) {
  test::FakeRequest request(json);
  return test::reply_of(worker.run(run_command(worker.context, client, request.request)));
}

bool has_no_room(DocView reply) {
  const auto code = reply["code"].to_int64();
  return code == 146 || code == 462;
}

std::size_t batch_size(DocView reply) { return reply.find_path("cursor.firstBatch").as_document().count(); }

TEST_CASE("reads of config.chunks give others their turn") {
  for (const char* command : {"{'count': 'chunks', 'query': {'shard': 's1'}, '$db': 'config'}",
                              "{'distinct': 'chunks', 'key': 'shard', '$db': 'config'}",
                              "{'aggregate': 'chunks', 'pipeline': [{'$group': {'_id': '$shard', 'n': {'$sum': 1}}}], "
                              "'cursor': {}, '$db': 'config'}",
                              "{'find': 'chunks', 'filter': {'shard': 's1'}, '$db': 'config'}"}) {
    INFO(command);
    FakeWorker worker(test::routing_of(table_of(1'000)), nothing);
    Client client;
    test::FakeRequest request(command);
    auto running = run_command(worker.context, client, request.request);
    bool done = false, other_first = false;
    const auto wait = [](Task<Response> task, bool* ended) -> Task<void> {
      const Response response = co_await task;
      CHECK_FALSE(response.failed);
      *ended = true;
    };
    test::advance_time_at_each_look(TimeSlice::quantum);
    worker.loop.spawn(wait(std::move(running), &done));
    worker.loop.post([&] { other_first = !done; });
    worker.loop.poll_until_idle();
    test::advance_time_at_each_look({});
    CHECK(done);
    CHECK(other_first);
  }
}

TEST_CASE("a long pipeline over what this router lists gives turns, and ends at its deadline") {
  const bool by_time = GENERATE(false, true);
  FakeWorker worker(test::routing_of(table_of(10)), nothing);
  std::vector<Client> idle(50);
  for (std::size_t i = 0; i < idle.size(); ++i) {
    idle[i].connection_id = i;
    worker.context.clients.insert(&idle[i]);
  }
  test::FakeRequest request(fmt::format(
      "{{'aggregate': 1, 'pipeline': [{{'$currentOp': {{'idleConnections': true}}}}, {{'$sort': {{'x': 1}}}}, "
      "{{'$project': {{'y': {{'$range': [0, 1000]}}}}}}], 'cursor': {{}}, 'maxTimeMS': {}, '$db': 'admin'}}",
      by_time ? 10 : 10'000));
  Client client;
  auto running = run_command(worker.context, client, request.request);
  int turns = 0;
  std::optional<bool> failed;
  const auto wait = [](Task<Response> task, std::optional<bool>* ended) -> Task<void> {
    const Response response = co_await task;
    *ended = response.failed;
  };
  const std::function<void()> take_turn = [&] {
    if (failed) return;
    ++turns;
    worker.loop.post(take_turn);
  };
  test::advance_time_at_each_look(TimeSlice::quantum);
  worker.loop.post(take_turn);
  worker.loop.spawn(wait(std::move(running), &failed));
  while (!failed) worker.loop.poll_until_idle();
  test::advance_time_at_each_look({});
  CHECK(failed == by_time);
  if (!by_time) CHECK(turns >= 100);  // pushed, and projected behind the sort
}

TEST_CASE("reads of config.chunks answer as before") {
  FakeWorker worker(test::routing_of(table_of(1'000)), nothing);
  Client client;
  CHECK(run(worker, client, "{'count': 'chunks', '$db': 'config'}").view()["n"].as_int32() == 1'000);
  CHECK(run(worker, client, "{'count': 'chunks', 'query': {'shard': 's1'}, 'skip': 100, '$db': 'config'}")
            .view()["n"].as_int32() == 400);
  const BsonDoc shards = run(worker, client, "{'distinct': 'chunks', 'key': 'shard', '$db': 'config'}");
  CHECK(to_json(shards.view()["values"]) == to_json(doc("{'v': ['s0', 's1']}").view()["v"]));
  const BsonDoc histories = run(worker, client, "{'distinct': 'chunks', 'key': 'history', '$db': 'config'}");
  CHECK(histories.view()["values"].as_document().count() == 2);
  CHECK(batch_size(run(worker, client, "{'find': 'chunks', 'skip': 990, 'batchSize': 100, '$db': 'config'}")) == 10);
  const BsonDoc sorted = run(worker, client,
                             "{'find': 'chunks', 'sort': {'min': -1}, 'limit': 1, 'projection': {'min': 1, '_id': 0}, "
                             "'$db': 'config'}");
  CHECK(to_json(sorted.view().find_path("cursor.firstBatch")) ==
        to_json(doc("{'v': [{'min': {'n': 999}}]}").view()["v"]));
}

TEST_CASE("what a read of config.chunks keeps must fit, what it passes over need not") {
  FakeWorker worker(test::routing_of(table_of(2'000)), nothing);
  worker.shared.memory.process.set_limit(256 * limits::kib);
  Client client;
  CHECK(has_no_room(run(worker, client, "{'find': 'chunks', '$db': 'config'}")));
  CHECK(worker.shared.memory.process.usage().used_bytes == 0);
  CHECK(batch_size(run(worker, client, "{'find': 'chunks', 'limit': 20, '$db': 'config'}")) == 20);
  CHECK(batch_size(run(worker, client, "{'find': 'chunks', 'filter': {'min.n': {'$gte': 1990}}, '$db': 'config'}")) ==
        10);
}

TEST_CASE("the rows of $currentOp are paid for, and others' cursors are not looked at") {
  FakeWorker worker(test::routing_of(table_of(2)), nothing);
  worker.shared.authorization = true;
  for (int i = 0; i < 2'000; ++i) {
    auto cursor = std::make_unique<ClusterCursor>();
    cursor->ns = "app.orders";
    cursor->owner = i < 3 ? "admin.ann" : "admin.bob";
    BsonWriter command;
    command.append("find", std::string(400, 'c'));
    const BsonDoc kept = std::move(command).finish();
    cursor->originating_command.assign(reinterpret_cast<const char*>(kept.view().data()), kept.size());
    worker.shared.cursors.insert(std::move(cursor), steady_ns());
  }
  worker.shared.memory.process.set_limit(256 * limits::kib);
  const auto password = auth::scram_password(auth::Hash::sha256, "ann", "pencil");
  const auto spec = [&](const char* name, auth::RoleGrant role) {
    auth::UserSpec user{name, "admin", {std::move(role)}, {}, {}};
    user.sha256 = auth::make_credentials(auth::Hash::sha256, **password, auth::bytes_of("a salt of some bytes"), 4096);
    return user;
  };
  worker.shared.users.configure({spec("ann", {"read", "app"}), spec("root", {"root", "admin"})});
  const auto as = [&](const char* name, std::string_view command) {
    Client client;
    client.user = fmt::format("admin.{}", name);
    client.login.user = worker.shared.users.table()->find("admin", name);
    client.login.generation = worker.shared.users.generation();
    return run(worker, client, command);
  };
  constexpr auto own =
      "{'aggregate': 1, 'pipeline': [{'$currentOp': {'idleCursors': true}}, {'$match': {'type': 'idleCursor'}}], "
      "'cursor': {}, '$db': 'admin'}";
  constexpr auto everybodys = "{'aggregate': 1, 'pipeline': [{'$currentOp': {'idleCursors': true, 'allUsers': true}}, "
                              "{'$limit': 1}], 'cursor': {}, '$db': 'admin'}";
  CHECK(batch_size(as("ann", own)) == 3);
  CHECK(as("ann", everybodys).view()["code"].to_int64() == 13);
  CHECK(has_no_room(as("root", everybodys)));
  CHECK(worker.shared.memory.process.usage().used_bytes == 0);
  worker.shared.memory.process.set_limit(64 * limits::mib);
  CHECK(batch_size(as("root", everybodys)) == 1);
  worker.shared.cursors.kill_all();
}

TEST_CASE("a listing over shards keeps each name once, and ends where there is no more room") {
  // Both shards list names of 10 KB each, ten at a time: the same, or their own.
  const bool same = GENERATE(true, false);
  int asked = 0;
  const auto page = [&](std::uint16_t shard, int from) {
    BsonWriter out;
    out.begin_document("cursor");
    out.begin_array(from == 0 ? "firstBatch" : "nextBatch");
    for (int i = from; i < from + 10; ++i) {
      BsonWriter row;
      row.append("name", fmt::format("{}{:03}", same || shard == 0 ? "a" : "b", i)).append("type", "collection");
      row.append("options", std::string(10'000, 'x'));
      out.append_item(std::move(row).finish().view());
    }
    out.end();
    out.append("id", std::int64_t{from + 10 < 100 ? 1'000 + from + 10 : 0}).append("ns", "other.$cmd.listCollections");
    out.end();
    out.append("ok", 1.0);
    return std::move(out).finish();
  };
  const auto answer = [&](std::uint16_t shard, DocView command) -> Result<BsonDoc> {
    if (command.first().name == "killCursors") return doc("{'ok': 1}");
    ++asked;
    if (command.first().name == "listCollections") return page(shard, 0);
    return page(shard, static_cast<int>(command.first().to_int64().value() - 1'000));
  };
  FakeWorker worker(
      test::routing_of("routing: {shards: [{name: s0, uri: \"mongodb://127.0.0.1:27018/\"}, "
                       "{name: s1, uri: \"mongodb://127.0.0.1:27019/\"}], defaultShardKey: {_id: hashed}}"),
      answer);
  worker.shared.memory.process.set_limit(1'600'000);
  Client client;
  const BsonDoc reply = run(worker, client, "{'listCollections': 1, '$db': 'other'}");
  INFO(to_json(reply).substr(0, 300));
  if (same) {
    CHECK(reply.view()["ok"].truthy());
    CHECK(asked == 20);
  } else {
    CHECK(has_no_room(reply));
    CHECK(asked < 20);
  }
  worker.shared.cursors.kill_all();
  CHECK(worker.shared.memory.process.usage().used_bytes == 0);
}

}  // namespace
}  // namespace spillway::exec
