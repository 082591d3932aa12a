// A cursor that a request works on: what each way home does to the registry, the counters and the shards.
#include "proxy/exec/cursors/active_cursor.h"

#include <string>
#include <vector>

#include "tests/support/fake_gateway.h"

namespace spillway::exec {
namespace {

using test::doc;
using test::FakeWorker;

constexpr const char* table = "routing:\n  shards: [{name: s0, uri: \"mongodb://127.0.0.1:27018/\"}]\n"
                              "  databases: [{name: app, primary: s0}]\n";

Result<BsonDoc> ok(std::uint16_t, DocView) { return doc("{'ok': 1}"); }

struct World {
  // A cursor of app.things; `open`: its shard keeps cursor 7 open.
  CursorPtr make(bool open) const {
    auto cursor = std::make_unique<ClusterCursor>();
    cursor->ns = "app.things";
    RemoteCursor& remote = cursor->remotes.emplace_back();
    remote.host = worker.gateway.states()[0].hosts[0].address.host;
    remote.port = worker.gateway.states()[0].hosts[0].address.port;
    remote.id = open ? 7 : 0;
    return cursor;
  }
  ActiveCursor active(bool open) { return {worker.context, make(open)}; }
  // One that its client knows, checked out again.
  ActiveCursor known(bool open) {
    ActiveCursor first = active(open);
    id = *first.finish(1, BatchOrigin::merged, Keep::always);
    return checked_out();
  }
  ActiveCursor checked_out() {
    return {worker.context, *worker.shared.cursors.check_out(id, "app.things", {})};
  }
  CursorCounts counts() const { return worker.shared.cursors.counts(); }
  // How often the shard was told to kill cursor 7.
  std::size_t kills() {
    worker.loop.poll_until_idle();
    for (const auto& [shard, command] : worker.gateway.sent) {
      CHECK(command.view()["cursors"].as_document()["0"].to_int64() == 7);
    }
    return worker.gateway.sent.size();
  }

  FakeWorker worker{test::routing_of(table), ok};
  std::int64_t id = 0;
};

Error refused() {
  Error error(ErrorCode::ingress_request_rate_limit_exceeded, "no memory");
  error.labels = {"SystemOverloadedError", "RetryableError"};
  return error;
}

TEST_CASE("a new cursor gets its id with the first batch that is not the last") {
  World world;
  ActiveCursor cursor = world.active(true);
  const auto id = cursor.finish(3, BatchOrigin::merged);
  REQUIRE(id.has_value());
  CHECK(*id > 0);
  CHECK_FALSE(cursor);
  CHECK(world.counts().open_total == 1);
  CHECK(world.counts().pinned == 0);
  CHECK(world.kills() == 0);
}

TEST_CASE("an exhausted cursor ends with its batch, unless the client has seen nothing of it") {
  World world;
  const Keep keep = GENERATE(Keep::unless_exhausted, Keep::always);
  const auto id = world.active(false).finish(3, BatchOrigin::merged, keep);
  REQUIRE(id.has_value());
  CHECK((*id != 0) == (keep == Keep::always));
  CHECK(world.counts().open_total == (keep == Keep::always ? 1 : 0));
}

TEST_CASE("a cursor that must not stay ends on its shard, too") {
  World world;
  const auto id = world.active(true).finish(3, BatchOrigin::passed, Keep::never);
  REQUIRE(id.has_value());
  CHECK(*id == 0);
  CHECK(world.counts().open_total == 0);
  CHECK(world.kills() == 1);
}

TEST_CASE("a cursor counts once as one of more than one batch") {
  World world;
  const Counter& counted = world.worker.shared.metrics.cursors_more_than_one_batch;
  ActiveCursor cursor = world.known(true);
  CHECK(counted.value() == 0);
  for (int batch = 2; batch <= 3; ++batch) {
    REQUIRE(cursor.finish(2, BatchOrigin::streamed).has_value());
    CHECK(counted.value() == 1);
    cursor = world.checked_out();
    CHECK(cursor->batches_returned == static_cast<std::uint64_t>(batch));
  }
  CHECK(cursor->documents_returned == 1 + 2 + 2);
  CHECK(cursor.put_back());
}

TEST_CASE("a cursor that was not given back ends in the registry and on its shard") {
  World world;
  { const ActiveCursor cursor = world.known(true); }
  CHECK(world.counts().open_total == 0);
  CHECK(world.kills() == 1);
}

TEST_CASE("an assignment ends the cursor before") {
  World world;
  ActiveCursor cursor = world.known(true);
  cursor = ActiveCursor();
  CHECK(world.counts().open_total == 0);
  CHECK(world.kills() == 1);
}

TEST_CASE("a batch of a cursor that was killed meanwhile goes out only if a shard made it") {
  World world;
  ActiveCursor cursor = world.known(true);
  CHECK(world.worker.shared.cursors.kill(world.id, "app.things").outcome ==
        CursorRegistry::KillOutcome::marked_in_use);
  const BatchOrigin origin = GENERATE(BatchOrigin::merged, BatchOrigin::passed, BatchOrigin::streamed);
  const auto id = cursor.finish(2, origin);
  if (origin == BatchOrigin::merged) {
    REQUIRE(id.has_error());
    CHECK(id.error().is(ErrorCode::cursor_killed));
  } else {
    REQUIRE(id.has_value());
    CHECK(*id == world.id);
  }
  CHECK(world.counts().open_total == 0);
  CHECK(world.worker.shared.metrics.cursors_killed.value() == 1);
  CHECK(world.kills() == 1);
}

TEST_CASE("a refused command leaves its cursor, and may be tried again") {
  World world;
  ActiveCursor cursor = world.known(true);
  CHECK(cursor.refuse(refused()).labels.size() == 2);
  CHECK(world.counts().open_total == 1);
  CHECK(world.checked_out().put_back());
  CHECK(world.kills() == 0);
}

TEST_CASE("a failed command ends its cursor, and is not to be tried again if the client knew that") {
  World world;
  const bool known = GENERATE(true, false);
  ActiveCursor cursor = known ? world.known(true) : world.active(true);
  CHECK(cursor.fail(refused()).labels.size() == (known ? 0 : 2));
  CHECK_FALSE(cursor);
  CHECK(world.counts().open_total == 0);
  CHECK(world.kills() == 1);
}

TEST_CASE("an enrolled cursor is known before its first batch") {
  World world;
  ActiveCursor cursor = world.active(true);
  cursor.enroll();
  world.id = cursor->id;
  CHECK(world.counts().open_total == 1);
  CHECK(world.counts().pinned == 1);
  CHECK(world.worker.shared.cursors.kill(world.id, "app.things").outcome ==
        CursorRegistry::KillOutcome::marked_in_use);
  CHECK_FALSE(cursor.put_back());
  CHECK(world.kills() == 1);
}

}  // namespace
}  // namespace spillway::exec
