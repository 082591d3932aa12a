#include "proxy/exec/counters/slow_shapes.h"

#include <catch2/catch.hpp>

#include <string>
#include <utility>

namespace spillway::exec {

namespace {

SlowShape shape_of_one(std::string ns, std::string shape) {
  SlowShape one;
  one.ns = std::move(ns);
  one.shape = std::move(shape);
  one.count = 1;
  return one;
}

}  // namespace

TEST_CASE("a table of slow shapes that is full forgets the one with the least time") {
  SlowShapes slow;
  for (std::size_t i = 0; i <= SlowShapes::shapes_max; ++i) {
    SlowShape one = shape_of_one("town.people", std::to_string(i));
    one.total_us = one.max_us = i == 5 ? 1 : static_cast<std::int64_t>(1'000 + i);
    slow.add(one);
  }
  CHECK(slow.forgotten() == 1);
  const auto all = slow.slowest(1'000);
  REQUIRE(all.size() == SlowShapes::shapes_max);
  CHECK(all.front().shape == std::to_string(SlowShapes::shapes_max));
  for (const SlowShape& each : all) CHECK(each.shape != "5");
  CHECK(slow.slowest(3).size() == 3);
}

TEST_CASE("operations of one shape on one collection are counted together") {
  SlowShapes slow;
  SlowShape one = shape_of_one("town.people", "{find: ?}");
  one.total_us = one.max_us = 100;
  one.shards_us = 90;
  one.shard_calls = 2;
  one.reply_bytes = 7;
  slow.add(one);
  one.total_us = one.max_us = 300;
  one.failed = 1;
  slow.add(one);
  one.ns = "town.houses";
  slow.add(one);
  const auto all = slow.slowest(10);
  REQUIRE(all.size() == 2);
  CHECK(all.front().count == 2);
  CHECK(all.front().failed == 1);
  CHECK(all.front().total_us == 400);
  CHECK(all.front().max_us == 300);
  CHECK(all.front().shards_us == 180);
  CHECK(all.front().shard_calls == 4);
  CHECK(all.front().reply_bytes == 14);
}

TEST_CASE("the names that a table of slow shapes keeps are short") {
  SlowShapes slow;
  slow.add(shape_of_one(std::string(1'000'000, 'n'), std::string(1'000'000, 's')));
  const auto all = slow.slowest(1);
  REQUIRE(all.size() == 1);
  CHECK(all.front().ns.size() == SlowShapes::name_bytes_max);
  CHECK(all.front().shape.size() == SlowShapes::name_bytes_max);
}

}  // namespace spillway::exec
