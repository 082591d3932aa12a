#include "allocator/heaps.h"
#include "proxy/exec/admin/hello.h"
#include "proxy/exec/commands/command_table.h"
#include "tests/support/fake_gateway.h"

namespace spillway::exec {

Task<Result<Response>> server_status_command(Context& context, Client& client,
                                             const Request& request);

namespace {

constexpr const char* two_shards = R"(
routing:
  shards:
    - {name: s0, uri: "mongodb://127.0.0.1:27018/"}
    - {name: s1, uri: "mongodb://127.0.0.1:27019/"}
)";

Result<BsonDoc> no_shard_is_asked(std::uint16_t, DocView) {
  return Error(ErrorCode::internal_error, "serverStatus asks no shard");
}

BsonDoc status_of(test::FakeWorker& worker, Client& client, std::string_view json) {
  const test::FakeRequest request(json, &worker);
  auto reply = worker.run(server_status_command(worker.context, client, request.request));
  REQUIRE(reply.has_value());
  return test::reply_of(*reply);
}

}  // namespace

TEST_CASE("server_status_has_the_types_that_tools_decode") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  Client client;
  const BsonDoc reply = status_of(worker, client, "{'serverStatus': 1, '$db': 'admin'}");
  const std::string heap = "memory.heaps." + std::string(linked_heaps().front()->name());
  const std::string in_use = heap + ".inUseBytes", given_back = heap + ".givenBackBytes";
  const std::pair<const char*, BsonType> fields[] = {
      {"host", BsonType::string},
      {"version", BsonType::string},
      {"process", BsonType::string},
      {"pid", BsonType::int64},
      {"uptime", BsonType::double_},
      {"uptimeMillis", BsonType::int64},
      {"uptimeEstimate", BsonType::int64},
      {"localTime", BsonType::date},
      {"asserts.user", BsonType::int64},
      {"asserts.rollovers", BsonType::int64},
      {"connections.current", BsonType::int64},
      {"connections.available", BsonType::int64},
      {"connections.totalCreated", BsonType::int64},
      {"connections.active", BsonType::int64},
      {"extra_info.note", BsonType::string},
      {"extra_info.page_faults", BsonType::int64},
      {"extra_info.user_time_us", BsonType::int64},
      {"mem.bits", BsonType::int32},
      {"mem.resident", BsonType::int32},
      {"mem.virtual", BsonType::int32},
      {"mem.supported", BsonType::boolean},
      {"memory.residentBytes", BsonType::int64},
      {"memory.budgets.process.usedBytes", BsonType::int64},
      {"memory.pressure.level", BsonType::string},
      {"memory.pressure.changes", BsonType::int64},
      {"memory.pressure.budgetShare", BsonType::double_},
      {"memory.pressure.cgroup.version", BsonType::string},
      {"memory.pressure.cgroup.limitBytes", BsonType::int64},
      {"memory.pressure.stall.known", BsonType::boolean},
      {"memory.budgets.replies.refusals", BsonType::int64},
      {"memory.malloc.library", BsonType::string},
      {"memory.malloc.keptBytes", BsonType::int64},
      {in_use.c_str(), BsonType::int64},
      {given_back.c_str(), BsonType::int64},
      {"memory.allocator.setting", BsonType::string},
      {"memory.allocator.current", BsonType::string},
      {"memory.allocator.trials", BsonType::int64},
      {"memory.release.releases", BsonType::int64},
      {"memory.release.byReason.kill", BsonType::int64},
      {"memory.release.slicesByMicros.<1000", BsonType::int64},
      {"memory.release.longestSliceMicros", BsonType::int64},
      {"memory.release.history", BsonType::array},
      {"metrics.commands.find.total", BsonType::int64},
      {"metrics.commands.find.failed", BsonType::int64},
      {"metrics.commands.<UNKNOWN>", BsonType::int64},
      {"metrics.cursor.timedOut", BsonType::int64},
      {"metrics.cursor.open.total", BsonType::int64},
      {"metrics.cursor.open.multiTarget", BsonType::int64},
      {"network.bytesIn", BsonType::int64},
      {"network.bytesOut", BsonType::int64},
      {"network.numRequests", BsonType::int64},
      {"opcounters.insert", BsonType::int64},
      {"opcounters.query", BsonType::int64},
      {"opcounters.update", BsonType::int64},
      {"opcounters.delete", BsonType::int64},
      {"opcounters.getmore", BsonType::int64},
      {"opcounters.command", BsonType::int64},
      {"sharding.configsvrConnectionString", BsonType::string},
      {"sharding.shards.s1.writable", BsonType::boolean},
      {"shardingStatistics.numHostsTargeted.find.allShards", BsonType::int64},
      {"shardingStatistics.numHostsTargeted.aggregate.unsharded", BsonType::int64},
      {"ok", BsonType::double_},
  };
  for (const auto& [path, type] : fields) {
    INFO(path);
    CHECK(reply.view().find_path(path).type == type);
  }
  CHECK(reply.view()["process"].as_string() == "mongos");
  CHECK(reply.view()["host"].as_string() == "router:27017");
  // A router has none of these, and tools tell it by that.
  for (const char* absent : {"locks", "globalLock", "wiredTiger", "repl", "storageEngine"}) {
    CHECK_FALSE(reply.view()[absent].exists());
  }
}

TEST_CASE("diagnostic_data_has_the_server_status") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  Client client;
  test::FakeRequest fake("{'getDiagnosticData': 1, '$db': 'admin'}");
  const BsonDoc reply = test::reply_of(worker.run(run_command(worker.context, client, fake.request)));
  CHECK(reply.view().find_path("data.serverStatus.connections.current").exists());
  CHECK(reply.view().find_path("data.serverStatus.start").type == BsonType::date);
  CHECK(reply.view().find_path("data.end").type == BsonType::date);
}

TEST_CASE("server_status_counts_what_happened") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  worker.gateway.states()[1].hosts.front().primary = false;
  worker.shared.metrics.op_insert.add(7);
  worker.shared.metrics.bytes_out.add(1'000);
  worker.shared.metrics.commits[static_cast<std::size_t>(CommitPlan::Type::two_phase)].initiated.add(5);
  worker.shared.metrics.commits[Metrics::recovered_commit].successful.add(4);
  worker.shared.transactions->statement("a", 1, true, catalog::ShardSet{0}, false, Clock::now());
  worker.shared.metrics.commands[command_named("find")->index].total.add(3);
  worker.shared.connections.current = 2;
  Client running, idle;
  const test::FakeRequest under_way("{'find': 'c', '$db': 'd'}");
  running.running = &under_way.request;
  worker.context.clients = {&running, &idle};
  auto held = worker.shared.memory.cursors.try_reserve(4'096);
  REQUIRE(held);
  const BsonDoc reply = status_of(worker, idle, "{'serverStatus': 1, '$db': 'admin'}");
  const std::pair<const char*, std::int64_t> counts[] = {
      {"opcounters.insert", 7},
      {"network.bytesOut", 1'000},
      {"metrics.commands.find.total", 3},
      {"connections.current", 2},
      {"connections.active", 1},
      {"transactions.currentOpen", 1},
      {"transactions.currentInactive", 1},
      {"transactions.commitTypes.twoPhaseCommit.initiated", 5},
      {"transactions.commitTypes.recoverWithToken.successful", 4},
      {"transactions.commitTypes.noShards.initiated", 0},
      {"memory.budgets.cursors.usedBytes", 4'096},
      {"memory.budgets.process.usedBytes", 4'096},
  };
  for (const auto& [path, count] : counts) {
    INFO(path);
    CHECK(reply.view().find_path(path).to_int64() == count);
  }
  CHECK(reply.view().find_path("sharding.shards.s0.writable").as_bool());
  CHECK_FALSE(reply.view().find_path("sharding.shards.s1.writable").as_bool());
  CHECK(reply.view().find_path("memory.residentBytes").as_int64() > 0);
}

TEST_CASE("connections that memory has no room for are not available") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  Client client;
  worker.shared.memory.connections.set_limit(10 * connection_bytes);
  const auto room = worker.shared.memory.connections.try_reserve(3 * connection_bytes);
  const BsonDoc reply = status_of(worker, client, "{'serverStatus': 1, '$db': 'admin'}");
  CHECK(reply.view().find_path("connections.available").to_int64() == 7);
}

TEST_CASE("a_retired_shard_is_named_nowhere") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  Client client;
  shard::ShardState& first = worker.gateway.states()[0];
  first.replica_set = true;
  shard::ShardState& retired = worker.gateway.states()[1];
  retired.hosts.clear();
  retired.retired = true;
  retired.max_wire_version = 0;
  const BsonDoc status = status_of(worker, client, "{'serverStatus': 1, '$db': 'admin'}");
  CHECK(status.view().find_path("sharding.shards.s0").exists());
  CHECK_FALSE(status.view().find_path("sharding.shards.s1").exists());
  test::FakeRequest request("{'listShards': 1, '$db': 'admin'}", &worker);
  const BsonDoc list = test::reply_of(worker.run(run_command(worker.context, client, request.request)));
  CHECK(list.view()["shards"].as_document().count() == 1);
  const BsonDoc hello = hello_reply(worker.context, client, wire::HelloRequest{}, {});
  CHECK(hello.view()["logicalSessionTimeoutMinutes"].to_int64() == 30);
  CHECK(hello.view()["maxWireVersion"].to_int64() == 21);
}

TEST_CASE("sections_of_server_status_can_be_left_out") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  Client client;
  const BsonDoc reply =
      status_of(worker, client, "{'serverStatus': 1, 'metrics': 0, 'mem': 1, '$db': 'admin'}");
  CHECK_FALSE(reply.view()["metrics"].exists());
  CHECK(reply.view()["mem"].exists());
  CHECK(reply.view()["opcounters"].exists());
}

}  // namespace spillway::exec
