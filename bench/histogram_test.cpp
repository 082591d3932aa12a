#include "bench/histogram.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <vector>

using spillway::bench::Histogram;

TEST_CASE("every value falls into the slot whose range holds it", "[histogram]") {
  std::vector<std::uint64_t> values;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    values.insert(values.end(), {power - 1, power, power + 1, power + power / 3});
  }
  values.push_back(~std::uint64_t{0});
  for (const auto value : values) {
    const auto slot = Histogram::index_of(value);
    CAPTURE(value, slot);
    REQUIRE(Histogram::upper_end(slot) >= value);
    if (slot > 0) REQUIRE(Histogram::upper_end(slot - 1) < value);
    // At most 1/128 too high.
    REQUIRE(Histogram::upper_end(slot) - value <= value / 128);
  }
}

TEST_CASE("percentiles agree with a sorted list within the promised error", "[histogram]") {
  std::mt19937_64 random(7);
  auto histogram = std::make_unique<Histogram>();
  std::vector<std::uint64_t> values;
  for (int at = 0; at < 20'000; ++at) {
    const std::uint64_t value = random() >> (20 + random() % 40);
    values.push_back(value);
    histogram->record(value);
  }
  std::sort(values.begin(), values.end());
  for (const double percent : {0.0, 1.0, 50.0, 99.0, 99.9, 100.0}) {
    const auto wanted = static_cast<std::size_t>(percent / 100 * 20'000);
    const auto exact = values[wanted == 0 ? 0 : wanted - 1];
    CAPTURE(percent);
    REQUIRE(histogram->percentile(percent) >= exact);
    REQUIRE(histogram->percentile(percent) <= exact + exact / 128 + 1);
  }
  REQUIRE(histogram->max() == values.back());
  REQUIRE(histogram->min() == values.front());
  REQUIRE(histogram->count() == 20'000);
}

TEST_CASE("an empty histogram reports zeros, and adding up equals recording together",
          "[histogram]") {
  auto a = std::make_unique<Histogram>();
  REQUIRE(a->percentile(99) == 0);
  REQUIRE(a->min() == 0);
  REQUIRE(a->mean() == 0);
  auto b = std::make_unique<Histogram>();
  auto both = std::make_unique<Histogram>();
  for (std::uint64_t value = 1; value < 5'000; value += 3) {
    (value % 2 == 0 ? *a : *b).record(value);
    both->record(value);
  }
  a->add(*b);
  REQUIRE(a->count() == both->count());
  REQUIRE(a->max() == both->max());
  REQUIRE(a->min() == both->min());
  REQUIRE(a->mean() == both->mean());
  REQUIRE(a->percentile(50) == both->percentile(50));
  std::uint64_t visited = 0;
  std::uint64_t last = 0;
  both->for_each([&](std::uint64_t value, std::uint64_t count) {
    REQUIRE(value > last);
    last = value;
    visited += count;
  });
  REQUIRE(visited == both->count());
  REQUIRE(last == both->max());
}
