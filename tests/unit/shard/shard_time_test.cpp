// What counts as an operation's time on its shards. On virtual time.
#include "proxy/shard/shard_time.h"

#include <catch2/catch.hpp>

#include "tests/support/clock_manual.h"
#include "tests/unit/shard/shard_support.h"

using namespace spillway;
using namespace spillway::shard;
using namespace spillway::test;
using namespace std::chrono_literals;

TEST_CASE("waits that follow one another add up, waits side by side count once") {
  ShardTime time;
  const auto wait = [&](ShardWait& shard, Duration before) {
    advance_time(before);
    shard.begin();
  };
  {
    ShardWait first(&time), second(&time), third(&time);
    wait(first, 3ms);
    wait(second, 2ms);
    advance_time(5ms);
    first.end();
    first.end();  // has ended
    CHECK(time.total() == 0ms);  // the second goes on
    advance_time(4ms);
    second.end();
    CHECK(time.total() == 11ms);
    wait(third, 20ms);
    advance_time(1ms);
  }  // the third ends with its scope
  CHECK(time.total() == 12ms);
  { const ShardWait never_begun(&time); }
  CHECK(time.total() == 12ms);
  ShardWait nobodys(nullptr);
  nobodys.begin();
  advance_time(7ms);
  nobodys.end();
  CHECK(nobodys.taken() == 7ms);
}
