#include <fmt/format.h>

#include "proxy/auth/impersonation.h"
#include "proxy/exec/admin/current_op.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "tests/support/fake_gateway.h"

namespace spillway::exec {

Task<Result<Response>> current_op_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> kill_op_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> collectionless_aggregate(Context& context, Client& client,
                                                const Request& request, DocView pipeline);

namespace {

using test::doc;
using test::FakeRequest;
using test::FakeWorker;

constexpr const char* two_shards = R"(
routing:
  shards:
    - {name: s0, uri: "mongodb://127.0.0.1:27018/"}
    - {name: s1, uri: "mongodb://127.0.0.1:27019/"}
)";

// s0 lists two operations, s1 does not know the command.
Result<BsonDoc> list_operations(std::uint16_t shard, DocView command) {
  if (command.first().name == "killOp") return doc("{'info': 'attempting', 'ok': 1.0}");
  if (shard == 1) return doc("{'ok': 0.0, 'code': 59, 'errmsg': 'no such command'}");
  return doc(
      "{'inprog': [{'opid': 7, 'client': '127.0.0.1:1', 'op': 'query', 'secs_running': 9},"
      "            {'opid': 8, 'op': 'none'}], 'ok': 1.0}");
}

// A client in the middle of a find, and one that waits.
struct Clients {
  explicit Clients(FakeWorker& worker) {
    running.connection_id = 5;
    running.peer = "127.0.0.1:5000";
    running.running = &find.request;
    running.running_since = Clock::now() - std::chrono::milliseconds(2500);
    running.operation_id = 41;
    idle.connection_id = 6;
    idle.operation_id = 40;  // of its last one, which has ended
    worker.context.clients = {&running, &idle};
  }
  FakeRequest find{"{'find': 'people', 'filter': {'a': 1}, '$db': 'town'}"};
  Client running, idle;
};

std::vector<std::string> opids(DocView rows) {
  std::vector<std::string> all;
  for (const Element& row : rows) all.push_back(to_json(row.as_document()["opid"]));
  std::sort(all.begin(), all.end());
  return all;
}

Result<BsonDoc> run_current_op(FakeWorker& worker, Client& client, std::string_view json) {
  const FakeRequest request(json, &worker);
  auto reply = worker.run(current_op_command(worker.context, client, request.request));
  if (reply.has_error()) return reply.error();
  return test::reply_of(*reply);
}

Result<BsonDoc> run_aggregate(FakeWorker& worker, Client& client, std::string_view json) {
  const FakeRequest request(json, &worker);
  const DocView pipeline = request.body.view()["pipeline"].as_document();
  auto reply =
      worker.run(collectionless_aggregate(worker.context, client, request.request, pipeline));
  if (reply.has_error()) return reply.error();
  return test::reply_of(*reply);
}

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("current_op_lists_local_operations_and_those_of_shards_that_can") {
  FakeWorker worker(test::routing_of(two_shards), list_operations);
  Clients clients(worker);
  struct Case {
    const char* command;
    Ids ids;
  };
  const Case cases[] = {
      {"{'currentOp': 1, '$db': 'admin'}", {"\"s0:7\"", "\"s0:8\"", "41"}},
      {"{'currentOp': 1, '$all': true, '$db': 'admin'}",
       {"\"s0:7\"", "\"s0:8\"", "41", "<missing>"}},
      {"{'currentOp': 1, '$ownOps': true, 'op': 'query', '$db': 'admin'}", {"\"s0:7\"", "41"}},
      {"{'currentOp': 1, 'secs_running': {'$gte': 5}, 'comment': 'x', '$db': 'admin'}",
       {"\"s0:7\""}},
      {"{'currentOp': 1, 'ns': 'nothing', '$db': 'admin'}", {}},
  };
  for (const Case& c : cases) {
    INFO(c.command);
    auto reply = run_current_op(worker, clients.idle, c.command);
    REQUIRE(reply.has_value());
    CHECK(opids(reply->view()["inprog"].as_document()) == c.ids);
    CHECK(reply->view()["ok"].as_double() == 1.0);
  }
}

TEST_CASE("an_operation_is_shown_with_its_command") {
  FakeWorker worker(test::routing_of(two_shards), list_operations);
  Clients clients(worker);
  clients.running.application_name = "census";
  clients.running.interrupt.request(Error(ErrorCode::interrupted, "killed"));
  const BsonDoc row = operation_document(worker.context, clients.running, {});
  const DocView shown = row;
  CHECK(shown["type"].as_string() == "op");
  CHECK(shown["desc"].as_string() == "conn5");
  CHECK(shown["client"].as_string() == "127.0.0.1:5000");
  CHECK(shown["appName"].as_string() == "census");
  CHECK(shown["active"].as_bool());
  CHECK(shown["opid"].as_int32() == 41);
  CHECK(shown["op"].as_string() == "query");
  CHECK(shown["ns"].as_string() == "town.people");
  CHECK(shown["secs_running"].as_int64() >= 2);
  CHECK(shown["microsecs_running"].as_int64() >= 2'500'000);
  CHECK(shown["command"].as_document()["find"].as_string() == "people");
  CHECK(shown["killPending"].as_bool());

  const BsonDoc idle = operation_document(worker.context, clients.idle, {});
  CHECK_FALSE(idle.view()["active"].as_bool());
  CHECK_FALSE(idle.view()["opid"].exists());
}

TEST_CASE("a_large_command_is_cut") {
  FakeWorker worker(test::routing_of(two_shards), list_operations);
  Clients clients(worker);
  const std::string filler(5'000, 'x');
  const FakeRequest large("{'find': 'c', 'filter': {'a': '" + filler +
                          "'}, 'comment': 'mine', '$db': 'd'}");
  clients.running.running = &large.request;
  CurrentOpOptions options;
  BsonDoc row = operation_document(worker.context, clients.running, options);
  CHECK(row.view().find_path("command.filter.a").as_string() == filler);
  options.truncate_operations = true;
  row = operation_document(worker.context, clients.running, options);
  CHECK(row.size() < 2'000);
  CHECK(row.view()["command"].as_document()["$truncated"].is_string());
  CHECK(row.view().find_path("command.comment").as_string() == "mine");
  // The command always cuts; the stage does when it is told to.
  const auto listed =
      run_current_op(worker, clients.idle, "{'currentOp': 1, 'opid': 41, '$db': 'admin'}");
  REQUIRE(listed.has_value());
  CHECK(listed->size() < 2'000);
}

TEST_CASE("a_shard_that_fails_is_named") {
  const auto unreachable = [](std::uint16_t shard, DocView command) -> Result<BsonDoc> {
    if (shard == 1) return Error(ErrorCode::host_unreachable, "gone");
    return list_operations(shard, command);
  };
  FakeWorker worker(test::routing_of(two_shards), unreachable);
  Client client;
  const auto reply = run_current_op(worker, client, "{'currentOp': 1, '$db': 'admin'}");
  REQUIRE(reply.has_error());
  CHECK(reply.error().is(ErrorCode::host_unreachable));
  CHECK(reply.error().message.find("s1") != std::string::npos);
}

TEST_CASE("current_op_runs_as_a_stage") {
  FakeWorker worker(test::routing_of(two_shards), list_operations);
  Clients clients(worker);
  auto cursor = std::make_unique<ClusterCursor>();
  cursor->ns = "town.people";
  worker.shared.cursors.insert(std::move(cursor), steady_ns());
  struct Case {
    const char* pipeline;
    const char* batch;
    std::size_t commands_sent;
  };
  const Case cases[] = {
      {"[{'$currentOp': {}}, {'$match': {'shard': 's0', 'op': 'query'}},"
       " {'$project': {'opid': 1, 'client_s': 1, '_id': 0}}]",
       "[ { \"opid\" : \"s0:7\", \"client_s\" : \"127.0.0.1:1\" } ]", 2},
      {"[{'$currentOp': {'localOps': true}}, {'$project': {'opid': 1}}]", "[ { \"opid\" : 41 } ]",
       0},
      {"[{'$currentOp': {'localOps': true, 'idleCursors': true}}, {'$match': {'type': "
       "'idleCursor'}},"
       " {'$project': {'ns': 1}}]",
       "[ { \"ns\" : \"town.people\" } ]", 0},
      {"[{'$currentOp': {'localOps': true, 'idleConnections': true}}, {'$count': 'n'}]",
       "[ { \"n\" : 2 } ]", 0},
  };
  for (const Case& c : cases) {
    INFO(c.pipeline);
    worker.gateway.sent.clear();
    const std::string command = std::string("{'aggregate': 1, 'pipeline': ") + c.pipeline +
                                ", 'cursor': {}, '$db': 'admin'}";
    auto reply = run_aggregate(worker, clients.idle, command);
    REQUIRE(reply.has_value());
    CHECK(to_json(reply->view().find_path("cursor.firstBatch")) == c.batch);
    CHECK(reply->view().find_path("cursor.id").to_int64() == 0);
    CHECK(reply->view().find_path("cursor.ns").as_string() == "admin.$cmd.aggregate");
    CHECK(worker.gateway.sent.size() == c.commands_sent);
  }
  CHECK(worker.shared.cursors.kill_all().size() == 1);
}

TEST_CASE("aggregations_without_a_collection_are_refused_by_name") {
  FakeWorker worker(test::routing_of(two_shards), list_operations);
  Client client;
  struct Case {
    const char* pipeline;
    const char* db;
    std::int32_t code;
  };
  const Case cases[] = {
      {"[]", "admin", 73},
      {"[{'$match': {}}]", "admin", 73},
      {"[{'$currentOp': {}}]", "town", 73},
      {"[{'$currentOp': 1}]", "admin", 9},
      {"[{'$currentOp': {'idleConnections': 1}}]", "admin", 9},
      {"[{'$currentOp': {'unknown': true}}]", "admin", 9},
      {"[{'$changeStream': {}}]", "admin", 115},
      {"[{'$currentOp': {'localOps': true}}, {'$sample': {'size': 1}}]", "admin", 115},
      {"[{}]", "admin", 40323},
  };
  for (const Case& c : cases) {
    INFO(c.pipeline);
    const std::string command = std::string("{'aggregate': 1, 'pipeline': ") + c.pipeline +
                                ", 'cursor': {}, '$db': '" + c.db + "'}";
    const auto reply = run_aggregate(worker, client, command);
    REQUIRE(reply.has_error());
    CHECK(reply.error().code == c.code);
    CHECK(worker.gateway.sent.empty());
  }
}

TEST_CASE("kill_op_reads_its_argument") {
  struct Case {
    const char* command;
    std::int32_t code;  // 0: parsed
    const char* shard;
    std::int64_t id;
  };
  const Case cases[] = {
      {"{'killOp': 1, 'op': 12}", 0, "", 12},
      {"{'killOp': 1, 'op': 12.0}", 0, "", 12},
      {"{'killOp': 1, 'op': 's0:12'}", 0, "s0", 12},
      {"{'killOp': 1, 'op': 's0:-3'}", 0, "s0", -3},
      {"{'killOp': 1}", 50759, "", 0},
      {"{'killOp': 1, 'op': true}", 50760, "", 0},
      {"{'killOp': 1, 'op': 1.5}", 26823, "", 0},
      {"{'killOp': 1, 'op': '12'}", 28625, "", 0},
      {"{'killOp': 1, 'op': ':12'}", 28625, "", 0},
      {"{'killOp': 1, 'op': 's0:'}", 28625, "", 0},
      {"{'killOp': 1, 'op': 's0:12x'}", 9, "", 0},
      {"{'killOp': 1, 'op': 's0:99999999999'}", 9, "", 0},
  };
  for (const Case& c : cases) {
    INFO(c.command);
    const auto target = parse_kill_op(doc(c.command));
    CHECK((target.has_error() ? target.error().code : 0) == c.code);
    if (c.code != 0 || target.has_error()) continue;
    CHECK(target->shard == c.shard);
    CHECK(target->operation_id == c.id);
  }
}

TEST_CASE("kill_op_marks_the_operation_or_asks_its_shard") {
  FakeWorker worker(test::routing_of(two_shards), list_operations);
  Clients clients(worker);
  const FakeRequest other("{'killOp': 1, 'op': 40, '$db': 'admin'}", &worker);
  REQUIRE(worker.run(kill_op_command(worker.context, clients.idle, other.request)).has_value());
  CHECK_FALSE(clients.running.interrupt.requested() != nullptr);
  CHECK_FALSE(clients.idle.interrupt.requested() != nullptr);  // its operation 40 has ended

  const FakeRequest local("{'killOp': 1, 'op': 41, '$db': 'admin'}", &worker);
  auto reply = worker.run(kill_op_command(worker.context, clients.idle, local.request));
  REQUIRE(reply.has_value());
  CHECK(clients.running.interrupt.requested() != nullptr);
  CHECK_FALSE(clients.idle.interrupt.requested() != nullptr);
  CHECK(worker.gateway.sent.empty());

  const FakeRequest remote("{'killOp': 1, 'op': 's1:9', '$db': 'admin'}", &worker);
  reply = worker.run(kill_op_command(worker.context, clients.idle, remote.request));
  REQUIRE(reply.has_value());
  CHECK(to_json(test::reply_of(*reply)) ==
        to_json(doc("{'shard': 's1', 'shardid': 9, 'ok': 1.0}")));
  REQUIRE(worker.gateway.sent.size() == 1);
  CHECK(worker.gateway.sent[0].first == 1);
  CHECK(to_json(worker.gateway.sent[0].second) ==
        to_json(doc("{'killOp': 1, 'op': 9, '$db': 'admin'}")));

  const FakeRequest unknown("{'killOp': 1, 'op': 's7:9', '$db': 'admin'}", &worker);
  reply = worker.run(kill_op_command(worker.context, clients.idle, unknown.request));
  REQUIRE(reply.has_error());
  CHECK(reply.error().is(ErrorCode::shard_not_found));
}

TEST_CASE("a user without the action killOp ends its own operations, and is not told which others run") {
  FakeWorker worker(test::routing_of(two_shards), list_operations);
  Clients clients(worker);
  worker.shared.authorization = true;
  clients.running.user = "app.ann";
  clients.idle.user = GENERATE("app.ann", "app.bob");
  const bool same_user = clients.idle.user == clients.running.user;
  for (const int op : {41, 12'345}) {
    const FakeRequest kill(fmt::format("{{'killOp': 1, 'op': {}, '$db': 'admin'}}", op), &worker);
    const auto reply = worker.run(kill_op_command(worker.context, clients.idle, kill.request));
    CHECK(reply.has_value() == (same_user && op == 41));
    if (reply.has_error()) CHECK(reply.error().is(ErrorCode::unauthorized));
  }
  CHECK((clients.running.interrupt.requested() != nullptr) == same_user);
}

TEST_CASE("every_worker_is_asked_on_its_own_thread") {
  FakeWorker worker(test::routing_of(two_shards), list_operations);
  FakeWorker other(test::routing_of(two_shards), list_operations);
  Clients clients(other);
  worker.shared.workers.push_back(&other.context);
  Client client;
  const FakeRequest request("{'currentOp': 1, 'opid': 41, '$db': 'admin'}", &worker);
  std::optional<Result<Response>> reply;
  struct Keep {
    static Task<void> result(Task<Result<Response>> task, std::optional<Result<Response>>* into) {
      auto value = co_await task;
      into->emplace(std::move(value));
    }
  };
  worker.loop.spawn(
      Keep::result(current_op_command(worker.context, client, request.request), &reply));
  worker.loop.poll_until_idle();
  CHECK_FALSE(reply.has_value());  // the other worker's loop has not run
  other.loop.poll_until_idle();
  worker.loop.poll_until_idle();
  REQUIRE(reply.has_value());
  REQUIRE(reply->has_value());
  const BsonDoc listed = test::reply_of(**reply);
  CHECK(opids(listed.view()["inprog"].as_document()) == Ids{"41"});
}

TEST_CASE("local sessions are those of open connections, each once, of the users that are asked for") {
  FakeWorker worker(test::routing_of(two_shards), list_operations);
  OpenClients all;
  Client clients[4];
  const char* const users[] = {"", "", "admin.ann", "admin.ann"};
  const auto lsid = [](char number) {
    BsonWriter out;
    const std::string id(16, number);
    out.append_binary("id", 4, auth::bytes_of(id));
    return std::move(out).finish();
  };
  const auto use = [&lsid](Client& client, char number) {
    const BsonDoc used = lsid(number);
    client.presence.note_session(auth::text_of(used.view().bytes()));
  };
  for (int i = 0; i < 4; ++i) {
    clients[i].user = users[i];
    clients[i].presence.attach(all, "127.0.0.1:1", i, false);
    clients[i].presence.set_user(users[i]);
    worker.context.clients.insert(&clients[i]);
  }
  use(clients[0], 'a');
  use(clients[0], 'b');
  use(clients[1], 'a');
  use(clients[1], 'b');
  use(clients[2], 'c');
  use(clients[3], 'd');
  // "a" for each session by its letter; "!" and the code for an error.
  const auto listed = [&](Client& client, const std::string& options, const std::string& more = "") {
    const auto reply = run_aggregate(worker, client, "{'aggregate': 1, 'pipeline': [{'$listLocalSessions': " + options +
                                                         "}" + more + "], 'cursor': {}, '$db': 'admin'}");
    if (reply.has_error()) return "!" + std::to_string(reply.error().code);
    std::string letters;
    for (const Element& row : reply->view()["cursor"].as_document()["firstBatch"].as_document()) {
      const DocView id = row.as_document()["_id"].as_document();
      REQUIRE(id["uid"].as_binary().data.size() == 32);
      REQUIRE(row.as_document()["lastUse"].type == BsonType::date);
      letters += static_cast<char>(id["id"].as_binary().data[0]);
    }
    std::sort(letters.begin(), letters.end());
    return letters;
  };
  CHECK(listed(clients[0], "{}") == "ab");
  CHECK(listed(clients[2], "{}") == "cd");
  CHECK(listed(clients[2], "{'allUsers': true}") == "abcd");
  CHECK(listed(clients[0], "{'users': [{'user': 'ann', 'db': 'admin'}]}") == "cd");
  CHECK(listed(clients[0], "{'users': [{'user': 'bob', 'db': 'admin'}]}").empty());
  CHECK(listed(clients[0], "{'allUsers': true}", ", {'$limit': 3}").size() == 3);
  CHECK(listed(clients[0], "1") == "!14");
  CHECK(listed(clients[0], "{'users': ['ann']}") == "!14");
  CHECK(listed(clients[0], "{'allUsers': true, 'users': [{'user': 'ann', 'db': 'admin'}]}") == "!12");
  CHECK(listed(clients[0], "{'some': 1}") == "!40415");
  // The next user of the connection does not see them.
  clients[2].user = "admin.bob";
  clients[2].presence.set_user("admin.bob");
  CHECK(listed(clients[2], "{}").empty());
  CHECK(listed(clients[3], "{}") == "d");
}

}  // namespace spillway::exec
