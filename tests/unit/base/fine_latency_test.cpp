#include "proxy/base/fine_latency.h"

#include <catch2/catch.hpp>
#include <chrono>

using namespace spillway;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

namespace {
constexpr auto last_bound_us = std::uint64_t{1} << fine_octave_last;
}

TEST_CASE("cells have bounds that grow by an eighth at most, and doublings are among them", "[latency]") {
  for (std::size_t i = 1; i + 1 < fine_cells; ++i) {
    const std::uint64_t before = fine_bound_us(i - 1), bound = fine_bound_us(i);
    INFO("cell " << i);
    REQUIRE(bound > before);
    if (i >= fine_cells_exact) REQUIRE(8 * (bound - before) <= before);
  }
  CHECK(fine_bound_us(fine_cells - 2) == last_bound_us);
}

TEST_CASE("each time falls into the cell whose bound it does not exceed", "[latency]") {
  CHECK(fine_cell_of(-1) == 0);
  CHECK(fine_cell_of(0) == 0);
  CHECK(fine_cell_of(1) == 0);
  for (std::size_t i = 0; i + 1 < fine_cells; ++i) {
    const auto bound_ns = static_cast<std::int64_t>(fine_bound_us(i) * 1000);
    INFO("cell " << i);
    REQUIRE(fine_cell_of(bound_ns) == i);
    REQUIRE(fine_cell_of(bound_ns - 1) == i);
    REQUIRE(fine_cell_of(bound_ns + 1) == i + 1);
  }
  CHECK(fine_cell_of(INT64_MAX) == fine_cells - 1);
}

TEST_CASE("a fine histogram knows its quantiles, its doublings and its sum", "[latency]") {
  FineHistogram times;
  CHECK(times.read().quantile_us(0.99) == 0);
  for (int i = 0; i < 980; ++i) times.add(nanoseconds(11'500));
  for (int i = 0; i < 15; ++i) times.add(microseconds(130));
  for (int i = 0; i < 4; ++i) times.add(microseconds(1'000));
  times.add(std::chrono::minutes(5));
  FineReading reading = times.read();
  CHECK(reading.total() == 1000);
  CHECK(reading.quantile_us(0.5) == 12);
  CHECK(reading.quantile_us(0.98) == 12);
  CHECK(reading.quantile_us(0.99) == 144);
  CHECK(reading.quantile_us(0.999) == 1024);
  CHECK(reading.quantile_us(1) == last_bound_us);
  CHECK(reading.up_to_octave(3) == 0);
  CHECK(reading.up_to_octave(4) == 980);
  CHECK(reading.up_to_octave(7) == 980);
  CHECK(reading.up_to_octave(8) == 995);
  CHECK(reading.up_to_octave(10) == 999);
  CHECK(reading.up_to_octave(fine_octave_last) == 999);
  CHECK(reading.sum_ns == 980ULL * 11'500 + 15 * 130'000 + 4 * 1'000'000 + 300'000'000'000ULL);
  times.add(-microseconds(5));
  CHECK(times.read().sum_ns == reading.sum_ns);
  CHECK(times.read().up_to_octave(0) == 1);
  reading += times.read();
  CHECK(reading.total() == 2001);
}
