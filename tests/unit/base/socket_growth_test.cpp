// What the buffers of moving streams may take.
#include <catch2/catch.hpp>

#include <optional>
#include <vector>

#include "proxy/base/socket_growth.h"

namespace spillway {
namespace {

constexpr std::uint64_t mib = 1 << 20;

TEST_CASE("eight streams share what sockets may grow by, and leave a little") {
  MemoryBudget payload("payload", 30 * mib);
  SocketGrowth growth(&payload);
  growth.set_limits(8 * mib, 30 * mib);
  std::vector<Reservation> taken;
  for (int i = 0; i < 8; ++i) {
    taken.push_back(growth.take_for_receiving());
    taken.push_back(growth.take_for_sending());
    CHECK(taken[taken.size() - 2].bytes() >= taken.back().bytes());
    CHECK(taken.back().bytes() >= mib / 4);
  }
  CHECK(taken.front().bytes() == 61 * mib / 20);
  const std::uint64_t used = growth.own().usage().used_bytes + growth.borrowed().usage().used_bytes;
  CHECK(used >= 25 * mib);
  CHECK(used <= 30 * mib);
  for (Reservation& one : taken) one.release();
  CHECK(payload.usage().used_bytes == 0);
}

TEST_CASE("sockets borrow nothing while three quarters of the payload's memory are in use") {
  MemoryBudget payload("payload", 32 * mib);
  SocketGrowth growth(&payload);
  growth.set_limits(0, 16 * mib);
  std::optional<Reservation> others = payload.try_reserve(24 * mib);
  CHECK(growth.take_for_receiving().bytes() == 0);
  others->shrink_to(20 * mib);
  CHECK(growth.take_for_receiving().bytes() == mib);  // a quarter of the rest
  CHECK(payload.usage().refusals == 0);
}

TEST_CASE("what was borrowed is wanted back above seven eighths, what is set aside never") {
  MemoryBudget payload("payload", 32 * mib);
  SocketGrowth growth(&payload);
  growth.set_limits(mib, 16 * mib);
  const Reservation borrowed = growth.take_for_receiving();
  REQUIRE(borrowed.budget() == &growth.borrowed());
  std::optional<Reservation> own = growth.try_reserve(mib);
  const std::uint64_t room = 28 * mib - borrowed.bytes();
  std::optional<Reservation> others = payload.try_reserve(room);
  CHECK_FALSE(growth.wants_back(borrowed));
  REQUIRE(others->try_grow(1));
  CHECK(growth.wants_back(borrowed));
  CHECK_FALSE(growth.wants_back(*own));
}

TEST_CASE("without a memory limit nothing grows") {
  SocketGrowth growth(nullptr);
  CHECK(growth.take_for_receiving().bytes() == 0);
  CHECK(growth.take_for_sending().bytes() == 0);
}

}  // namespace
}  // namespace spillway
