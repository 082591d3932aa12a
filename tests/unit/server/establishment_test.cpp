// Connections that come too fast: on sockets that nobody reads, and time that the test passes in.
#include "proxy/server/establishment.h"

#include <catch2/catch.hpp>
#include <sys/socket.h>

#include <utility>
#include <vector>

namespace spillway::server {
namespace {

using namespace std::chrono_literals;
using Verdict = Establishment::Verdict;
constexpr TimePoint start{std::chrono::hours(24)};

struct World {
  exec::Shared shared{0};
  exec::RateLimiter& rate = *shared.connection_rate;
  Establishment establishment{shared};
  std::vector<FileDescriptor> clients;

  World() {
    rate.enabled = true;
    rate.per_second = 10;
    rate.burst_seconds = 0.2;
    rate.queue_max = 3;
  }
  Verdict come(TimePoint now, bool exempt = false) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    clients.emplace_back(ends[0]);
    Establishment::Comer comer{FileDescriptor(ends[1]), Entrance::clients, {}};
    const Verdict verdict = establishment.offer(comer, exempt, now);
    CHECK(static_cast<bool>(comer.socket) == (verdict != Verdict::waits));
    return verdict;
  }
};

TEST_CASE("who comes too fast waits, and is closed where the queue is full", "[establishment]") {
  World world;
  for (const Verdict verdict : {Verdict::enters, Verdict::enters, Verdict::waits, Verdict::waits, Verdict::waits,
                                Verdict::is_closed}) {
    CHECK(world.come(start) == verdict);
  }
  CHECK(world.shared.connections_queued == 3);
  CHECK_FALSE(world.establishment.next(start).has_value());
  CHECK(world.establishment.ask_again_in(start) == 100ms);
  CHECK(world.establishment.next(start + 100ms).has_value());
  CHECK_FALSE(world.establishment.next(start + 100ms).has_value());
  // First come, first served: who comes now waits behind those who do.
  CHECK(world.come(start + 200ms) == Verdict::waits);
  CHECK(world.establishment.next(start + 400ms).has_value());
  CHECK(world.establishment.next(start + 400ms).has_value());
  CHECK_FALSE(world.establishment.next(start + 400ms).has_value());
  CHECK(world.establishment.next(start + 500ms).has_value());
  CHECK_FALSE(world.establishment.ask_again_in(start + 500ms).has_value());
  const exec::RateLimiter& rate = world.rate;
  CHECK(rate.attempted.value() == 7);
  CHECK(rate.successful.value() == 6);
  CHECK(rate.rejected.value() == 1);
  CHECK(rate.added_to_queue.value() == 4);
  CHECK(rate.removed_from_queue.value() == 4);
  CHECK(rate.mean_wait_us() > 20'000);
  CHECK(world.shared.connections_queued == 0);
}

TEST_CASE("who has left does not keep others waiting, and takes no token", "[establishment]") {
  World world;
  for (int i = 0; i < 5; ++i) world.come(start);
  world.clients[2].reset();
  world.clients[3].reset();
  CHECK(world.establishment.next(start + 100ms).has_value());
  CHECK(world.rate.interrupted.value() == 2);
  CHECK(world.establishment.waiting() == 0);
}

TEST_CASE("a full queue is looked through for those who have left", "[establishment]") {
  World world;
  for (int i = 0; i < 5; ++i) world.come(start);
  world.clients[3].reset();
  CHECK(world.come(start + 50ms) == Verdict::waits);
  CHECK(world.establishment.waiting() == 3);
  CHECK(world.rate.interrupted.value() == 1);
}

TEST_CASE("exempt addresses enter, and everybody does once it is switched off", "[establishment]") {
  World world;
  for (int i = 0; i < 5; ++i) world.come(start);
  CHECK(world.come(start, true) == Verdict::enters);
  CHECK(world.rate.exempted.value() == 1);
  world.rate.enabled = false;
  CHECK(world.come(start) == Verdict::enters);
  for (int i = 0; i < 3; ++i) CHECK(world.establishment.next(start).has_value());
  CHECK(world.rate.attempted.value() == 5);
}

TEST_CASE("without a burst capacity there is no limit, as in MongoDB", "[establishment]") {
  World world;
  world.rate.burst_seconds = std::numeric_limits<double>::max();
  for (int i = 0; i < 100; ++i) CHECK(world.come(start) == Verdict::enters);
}

}  // namespace
}  // namespace spillway::server
