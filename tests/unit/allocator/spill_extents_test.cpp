#include "allocator/spill_extents.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace spillway {
namespace {
constexpr std::uint64_t page = SpillExtents::grain_bytes;
}

TEST_CASE("extents_are_whole_pages_and_the_lowest_that_fit", "[spill]") {
  SpillExtents extents(10 * page + 17);
  CHECK(extents.limit_bytes() == 10 * page);
  const auto a = extents.take(1), b = extents.take(page + 1), c = extents.take(page);
  REQUIRE((a && b && c));
  CHECK(*a == SpillExtent{0, page});
  CHECK(*b == SpillExtent{page, 2 * page});
  CHECK(*c == SpillExtent{3 * page, page});
  CHECK(extents.used_bytes() == 4 * page);
  extents.give(*b);
  CHECK(extents.end_bytes() == 4 * page);
  CHECK(extents.take(page) == SpillExtent{page, page});
  CHECK(extents.take(2 * page) == SpillExtent{4 * page, 2 * page});
  CHECK(extents.take(page) == SpillExtent{2 * page, page});
}

TEST_CASE("beyond_the_limit_there_is_nothing", "[spill]") {
  SpillExtents extents(4 * page);
  CHECK_FALSE(extents.take(4 * page + 1));
  const auto all = extents.take(4 * page);
  REQUIRE(all);
  CHECK_FALSE(extents.take(1));
  extents.give(*all);
  CHECK(extents.end_bytes() == 0);
  CHECK(extents.take(1));
  SpillExtents none(0);
  CHECK_FALSE(none.take(1));
  CHECK_FALSE(extents.take(UINT64_MAX));
}

TEST_CASE("the_end_sinks_when_what_lies_there_comes_back", "[spill]") {
  SpillExtents extents(8 * page);
  const auto a = extents.take(page), b = extents.take(page), c = extents.take(page);
  REQUIRE((a && b && c));
  extents.give(*b);
  CHECK(extents.holes() == 1);
  extents.give(*c);
  CHECK(extents.holes() == 0);
  CHECK(extents.end_bytes() == page);
  extents.give(*a);
  CHECK(extents.end_bytes() == 0);
  CHECK(extents.used_bytes() == 0);
}

TEST_CASE("random_use_never_overlaps_and_always_closes_up", "[spill]") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 dice(seed);
    SpillExtents extents(64 * page);
    std::vector<SpillExtent> held;
    std::vector<bool> taken(64, false);
    for (int step = 0; step < 2'000; ++step) {
      if (dice() % 2 == 0 || held.empty()) {
        const auto extent = extents.take(1 + dice() % (6 * page));
        if (!extent) continue;
        REQUIRE(extent->offset + extent->bytes <= 64 * page);
        for (std::uint64_t at = extent->offset / page; at < (extent->offset + extent->bytes) / page;
             ++at) {
          REQUIRE_FALSE(taken[at]);
          taken[at] = true;
        }
        held.push_back(*extent);
      } else {
        std::swap(held[dice() % held.size()], held.back());
        for (std::uint64_t at = 0; at < held.back().bytes / page; ++at) {
          taken[held.back().offset / page + at] = false;
        }
        extents.give(held.back());
        held.pop_back();
      }
      std::uint64_t used = 0;
      for (const SpillExtent& extent : held) used += extent.bytes;
      REQUIRE(extents.used_bytes() == used);
      REQUIRE((extents.end_bytes() == 0 || taken[extents.end_bytes() / page - 1]));
    }
    for (const SpillExtent& extent : held) extents.give(extent);
    CHECK(extents.used_bytes() == 0);
    CHECK(extents.end_bytes() == 0);
    CHECK(extents.holes() == 0);
  }
}

}  // namespace spillway
