#include "proxy/shard/pool.h"

#include <catch2/catch.hpp>

#include "proxy/shard/interrupt.h"
#include "tests/unit/shard/shard_support.h"

using namespace spillway;
using namespace spillway::shard;
using namespace spillway::test;
using namespace std::chrono_literals;

TEST_CASE("the arithmetic of pools") {
  const PoolLimits limits{.min = 2, .max = 10, .connecting_max = 3};
  const auto create = [&](PoolCounts counts) { return connections_to_create(counts, limits); };
  CHECK(create({}) == 2);
  CHECK(create({.idle = 2}) == 0);
  CHECK(create({.idle = 1, .connecting = 1}) == 0);
  CHECK(create({.in_use = 5, .waiting = 2}) == 2);
  CHECK(create({.in_use = 5, .connecting = 1, .waiting = 2}) == 1);
  CHECK(create({.in_use = 5, .waiting = 9}) == 3);
  CHECK(create({.in_use = 5, .connecting = 3, .waiting = 9}) == 0);
  CHECK(create({.in_use = 10, .waiting = 9}) == 0);
  CHECK(create({.in_use = 9, .connecting = 1, .waiting = 9}) == 0);
  CHECK(create({.in_use = 2, .connecting = 5, .waiting = 9}) == 0);
  CHECK(connections_to_create({.waiting = 1}, {.min = 0, .max = 1, .connecting_max = 1}) == 1);
  CHECK(connections_max(Use::bulk, 1) == 1);
  CHECK(connections_max(Use::bulk, 2) == 1);
  CHECK(connections_max(Use::bulk, 3) == 2);
  CHECK(connections_max(Use::bulk, 100) == 75);
  CHECK(connections_max(Use::waiting, 1) == 1);
  CHECK(connections_max(Use::waiting, 2) == 1);
  CHECK(connections_max(Use::waiting, 100) == 50);
}

namespace {

struct Acquired {
  std::optional<Result<Lease>> result;
  bool ok() const { return result && result->has_value(); }
};

Task<void> acquire(Pool* pool, TimePoint deadline, Use use, Interrupt* interrupt,
                   std::shared_ptr<Acquired> into) {
  auto acquiring = pool->acquire(time_point_never, deadline, use, interrupt);
  into->result.emplace(co_await acquiring);
}

struct Bench final : PoolOwner {
  explicit Bench(PoolLimits limits)
      : network(loop),
        server(loop, network, "a", 1),
        settings{.loop = loop,
                 .network = network,
                 .budget = budget,
                 .link_budget = budget,
                 .introduction = {},
                 .limits = limits},
        pool(std::make_unique<Pool>(settings, HostAddress{"a", 1}, *this)) {}
  ~Bench() {
    pool->stop();
    run_for(loop, 1min);
    pool.reset();
    run_for(loop, 1min);
  }
  std::shared_ptr<Acquired> ask(Use use = Use::point, TimePoint deadline = time_point_never) {
    auto into = begin_to_ask(use, deadline);
    loop.poll_until_idle();
    return into;
  }
  // As far as it goes before the loop runs.
  std::shared_ptr<Acquired> begin_to_ask(Use use = Use::point, TimePoint deadline = time_point_never,
                                         Interrupt* interrupt = nullptr) {
    auto into = std::make_shared<Acquired>();
    loop.spawn(acquire(pool.get(), deadline, use, interrupt, into));
    return into;
  }
  void connect_failed(const HostAddress&, const Error&) override { ++failures; }
  void login_refused(const HostAddress&, const Error&) override { ++failures; }
  void login_accepted(const HostAddress&) override {}
  void connection_opened() override {}
  void stopped_pool_changed() override {}

  MemoryBudget budget{"test", 0};
  Loop loop{Loop::Drive::manual};
  SimNetwork network;
  ScriptedServer server;
  PoolSettings settings;
  std::unique_ptr<Pool> pool;
  int failures = 0;
};

}  // namespace

TEST_CASE("connections are used again, the most recently used first") {
  Bench bench({.min = 0, .max = 10, .connecting_max = 10});
  auto first = bench.ask();
  auto second = bench.ask();
  REQUIRE(first->ok());
  REQUIRE(second->ok());
  const Connection* const last = &***second->result;
  first->result.reset();
  second->result.reset();
  CHECK(bench.pool->idle() == 2);
  CHECK(&*bench.pool->try_acquire(Use::point) == last);
  CHECK(bench.pool->created() == 2);
  CHECK(bench.server.hellos == 2);
}

TEST_CASE("waiters are served in order, up to the maximum") {
  Bench bench({.min = 0, .max = 2, .connecting_max = 2});
  std::vector<std::shared_ptr<Acquired>> asked;
  for (int i = 0; i < 5; ++i) asked.push_back(bench.ask());
  CHECK(asked[0]->ok());
  CHECK(asked[1]->ok());
  CHECK_FALSE(asked[2]->result);
  CHECK(bench.pool->waiting() == 3);
  asked[1]->result.reset();
  bench.loop.poll_until_idle();
  CHECK(asked[2]->ok());
  CHECK_FALSE(asked[3]->result);
  // A connection that comes back broken is replaced.
  (**asked[0]->result)->mark_broken();
  asked[0]->result.reset();
  bench.loop.poll_until_idle();
  CHECK(asked[3]->ok());
  CHECK(bench.pool->created() == 3);
  for (auto& each : asked) {
    each->result.reset();
    bench.loop.poll_until_idle();
  }
  CHECK(bench.pool->quiet());
}

TEST_CASE("a waiter's deadline") {
  Bench bench({.min = 0, .max = 1, .connecting_max = 1});
  auto holder = bench.ask();
  const TimePoint start = Clock::now();
  auto waiter = bench.ask(Use::point, start + 3s);
  auto patient = bench.ask();
  run_until(
      bench.loop, [&] { return waiter->result.has_value(); }, 1min);
  CHECK(Clock::now() - start == 3s);
  CHECK(waiter->result->error().is(ErrorCode::network_interface_exceeded_time_limit));
  CHECK(bench.pool->waiting() == 1);
  holder->result.reset();
  bench.loop.poll_until_idle();
  CHECK(patient->ok());
}

TEST_CASE("bulk requests leave connections for the others") {
  Bench bench({.min = 0, .max = 4, .connecting_max = 4});
  std::vector<std::shared_ptr<Acquired>> bulk;
  for (int i = 0; i < 5; ++i) bulk.push_back(bench.ask(Use::bulk));
  CHECK(bulk[2]->ok());
  CHECK_FALSE(bulk[3]->result);
  CHECK(bench.pool->in_use() == 3);
  auto point = bench.ask();
  CHECK(point->ok());
  point->result.reset();
  bench.loop.poll_until_idle();
  CHECK_FALSE(bulk[3]->result);  // though a connection is idle
  CHECK(bench.pool->idle() == 1);
  CHECK(bench.ask()->ok());  // nor do point operations wait behind bulk ones
  bulk[0]->result.reset();
  bench.loop.poll_until_idle();
  CHECK(bulk[3]->ok());
  CHECK_FALSE(bulk[4]->result);
  bulk[1]->result.reset();
  bench.loop.poll_until_idle();
  CHECK(bulk[4]->ok());
}

TEST_CASE("getMores that wait for new documents leave connections for scans") {
  Bench bench({.min = 0, .max = 8, .connecting_max = 8});
  std::vector<std::shared_ptr<Acquired>> waiting, bulk;
  for (int i = 0; i < 6; ++i) waiting.push_back(bench.ask(Use::waiting));
  CHECK(waiting[3]->ok());
  CHECK_FALSE(waiting[4]->result);
  for (int i = 0; i < 3; ++i) bulk.push_back(bench.ask(Use::bulk));
  CHECK(bulk[1]->ok());
  CHECK_FALSE(bulk[2]->result);  // both together: three quarters
  auto first_point = bench.ask(), second_point = bench.ask();
  CHECK(first_point->ok());
  CHECK(second_point->ok());
  // Places that become free are for both in turn: the last was a scan's.
  waiting[0]->result.reset();
  bench.loop.poll_until_idle();
  CHECK(waiting[4]->ok());
  CHECK_FALSE(bulk[2]->result);
  bulk[0]->result.reset();
  bench.loop.poll_until_idle();
  CHECK(bulk[2]->ok());
  bulk[1]->result.reset();
  bench.loop.poll_until_idle();
  CHECK_FALSE(waiting[5]->result);  // half are waiting
  waiting[1]->result.reset();
  bench.loop.poll_until_idle();
  CHECK(waiting[5]->ok());
}

TEST_CASE("a request that turned out to be bulk leaves connections for the others") {
  Bench bench({.min = 0, .max = 4, .connecting_max = 4});
  std::vector<std::shared_ptr<Acquired>> asked;
  for (int i = 0; i < 3; ++i) asked.push_back(bench.ask());
  for (auto& each : asked) (*each->result)->mark_bulk();
  (*asked[0]->result)->mark_bulk();  // once
  auto bulk = bench.ask(Use::bulk);
  CHECK_FALSE(bulk->result);
  CHECK(bench.ask()->ok());
  asked[0]->result.reset();
  bench.loop.poll_until_idle();
  CHECK(bulk->ok());
  asked[1]->result.reset();
  bench.loop.poll_until_idle();
  CHECK(bench.ask(Use::bulk)->ok());
}

TEST_CASE("points go before bulk requests that wait, which have their turn") {
  Bench bench({.min = 0, .max = 2, .connecting_max = 2});
  auto first = bench.ask();
  auto second = bench.ask();
  auto bulk = bench.ask(Use::bulk);
  std::vector<std::shared_ptr<Acquired>> points;
  for (std::size_t i = 0; i < shard::points_in_a_row + 2; ++i) points.push_back(bench.ask());
  first->result.reset();
  std::size_t served = 0;
  for (;; ++served) {
    bench.loop.poll_until_idle();
    if (bulk->result) break;
    REQUIRE(served < points.size());
    REQUIRE(points[served]->ok());
    points[served]->result.reset();
  }
  CHECK(served == shard::points_in_a_row);
  CHECK(bulk->ok());
  bulk->result.reset();
  second->result.reset();
  for (std::size_t i = served; i < points.size(); ++i) {
    bench.loop.poll_until_idle();
    CHECK(points[i]->ok());
    points[i]->result.reset();
  }
}

TEST_CASE("idle connections are trimmed to the minimum, and the minimum is kept") {
  Bench bench({.min = 2, .max = 10, .connecting_max = 10});
  bench.pool->tick(Clock::now(), false);
  bench.loop.poll_until_idle();
  CHECK(bench.pool->idle() == 0);  // not while the host is down
  bench.pool->tick(Clock::now(), true);
  bench.loop.poll_until_idle();
  CHECK(bench.pool->idle() == 2);
  {
    std::vector<std::shared_ptr<Acquired>> many;
    for (int i = 0; i < 6; ++i) many.push_back(bench.ask());
  }
  CHECK(bench.pool->idle() == 6);
  run_for(bench.loop, 299s);
  bench.pool->tick(Clock::now(), true);
  CHECK(bench.pool->idle() == 6);
  run_for(bench.loop, 2s);
  bench.pool->tick(Clock::now(), true);
  CHECK(bench.pool->idle() == 2);
}

TEST_CASE("idle connections that bulk requests used go sooner, for what their buffers took") {
  Bench bench({.min = 1, .max = 10, .connecting_max = 10});
  {
    std::vector<std::shared_ptr<Acquired>> many;
    for (int i = 0; i < 6; ++i) many.push_back(bench.ask(i % 2 == 0 ? Use::bulk : Use::point));
  }
  CHECK(bench.pool->idle() == 6);
  run_for(bench.loop, 9s);
  bench.pool->tick(Clock::now(), true);
  CHECK(bench.pool->idle() == 6);
  run_for(bench.loop, 2s);
  SECTION("unless the server would end cursors that were opened over them") {
    for (int i = 0; i < 9; ++i) {
      bench.pool->tick(Clock::now(), true, true);
      CHECK(bench.pool->idle() == 6);
      run_for(bench.loop, 60s);
    }
    run_for(bench.loop, 60s);
    bench.pool->tick(Clock::now(), true, true);
    CHECK(bench.pool->idle() == 1);
    return;
  }
  bench.pool->tick(Clock::now(), true);
  CHECK(bench.pool->idle() == 3);
}

TEST_CASE("connections whose buffers hold memory that others need are closed while idle, or when they come back") {
  Bench bench({.min = 0, .max = 10, .connecting_max = 10});
  auto lent = bench.ask(Use::bulk);
  bench.ask();
  CHECK(bench.pool->idle() == 1);
  bench.pool->tick(Clock::now(), true);
  CHECK(bench.pool->idle() == 1);
  bench.network.set_faults({.memory_is_wanted_back = true});
  bench.pool->tick(Clock::now(), true);
  CHECK(bench.pool->idle() == 0);
  CHECK(lent->ok());
  lent->result.reset();
  CHECK(bench.pool->idle() == 0);
  CHECK(bench.pool->quiet());
}

TEST_CASE("a connection that died while idle is not lent") {
  Bench bench({.min = 0, .max = 10, .connecting_max = 10});
  auto first = bench.ask();
  first->result.reset();
  bench.server.kill();
  bench.server.restart();
  run_for(bench.loop, 2s);
  auto second = bench.ask();
  REQUIRE(second->ok());
  CHECK(bench.pool->created() == 2);
}

TEST_CASE("dropping a pool closes what is idle at once and the rest when it comes back") {
  Bench bench({.min = 0, .max = 10, .connecting_max = 10});
  auto idle = bench.ask();
  auto used = bench.ask();
  idle->result.reset();
  bench.pool->drop();
  CHECK(bench.pool->idle() == 0);
  used->result.reset();
  CHECK(bench.pool->idle() == 0);
  CHECK(bench.pool->quiet());
}

TEST_CASE("a host that refuses fails the requests that wait") {
  Bench bench({.min = 0, .max = 10, .connecting_max = 2});
  bench.server.kill();
  auto first = bench.ask();
  REQUIRE(first->result);
  CHECK(first->result->error().is(ErrorCode::host_unreachable));
  CHECK(bench.failures >= 1);
}

TEST_CASE("a stopped pool refuses, and becomes quiet when the last lease ends") {
  Bench bench({.min = 0, .max = 1, .connecting_max = 1});
  auto lease = bench.ask();
  auto waiter = bench.ask();
  bench.pool->stop();
  bench.loop.poll_until_idle();
  REQUIRE(waiter->result);
  CHECK(waiter->result->has_error());
  CHECK(bench.ask()->result->has_error());
  CHECK_FALSE(bench.pool->quiet());
  lease->result.reset();
  CHECK(bench.pool->quiet());
  CHECK(bench.pool->idle() == 0);
}

TEST_CASE("a request that is interrupted leaves the line, and the next one gets its connection") {
  Bench bench({.min = 0, .max = 1, .connecting_max = 1});
  auto holder = bench.ask();
  REQUIRE(holder->ok());
  Interrupt interrupt;
  auto waiter = bench.begin_to_ask(Use::point, time_point_never, &interrupt);
  bench.loop.poll_until_idle();
  CHECK(bench.pool->waiting() == 1);
  interrupt.request(Error(ErrorCode::interrupted, "killed"));
  // Both before the waiter hears of it.
  holder->result.reset();
  auto other = bench.begin_to_ask();
  bench.loop.poll_until_idle();
  REQUIRE(waiter->result);
  REQUIRE(waiter->result->has_error());
  CHECK(waiter->result->error().is(ErrorCode::interrupted));
  CHECK(other->ok());
  CHECK(bench.pool->created() == 1);
}

TEST_CASE("a request that is interrupted when it has been served is served all the same") {
  Bench bench({.min = 0, .max = 1, .connecting_max = 1});
  auto holder = bench.ask();
  REQUIRE(holder->ok());
  Interrupt interrupt;
  auto waiter = bench.begin_to_ask(Use::point, time_point_never, &interrupt);
  bench.loop.poll_until_idle();
  holder->result.reset();
  interrupt.request(Error(ErrorCode::interrupted, "killed"));
  bench.loop.poll_until_idle();
  CHECK(waiter->ok());
  CHECK(bench.pool->waiting() == 0);
}

TEST_CASE("an attempt to connect that takes too long fails no request while others succeed") {
  Bench bench({.min = 0, .max = 10, .connecting_max = 2});
  // The first hello hangs; the host answers the others.
  bench.network.set_byte_fault("a", 1, {.kind = ByteFault::Kind::split, .at_bytes = 1, .pause = 20s});
  auto first = bench.begin_to_ask();
  auto second = bench.begin_to_ask();
  run_for(bench.loop, 1s);
  REQUIRE(second->ok() != first->ok());
  run_for(bench.loop, 10s);
  CHECK(first->ok());
  CHECK(second->ok());
  CHECK(bench.failures == 0);
}
