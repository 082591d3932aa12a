// The rule of memory.allocator: auto, on load curves.
#include "allocator/policy.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/units.h"

namespace spillway {
namespace {

using test::mib;

// Seconds of one kind of load.
struct Stretch {
  int seconds;
  std::uint64_t taken_mib_per_s;
  std::uint64_t resident_mib;
  double cpu_share;           // under jemalloc
  double tcmalloc_cpu_share;  // the same work under tcmalloc
  double cold_cpu_share = 0;  // more, in the first seconds under another heap than before
};

// A process that lives through a curve, a sample per second.
class Life {
 public:
  explicit Life(std::uint64_t limit_mib, AllocatorChoice choice = AllocatorChoice::automatic)
      : policy(choice, {}), limit_mib_(limit_mib) {
    step();
  }

  void live(const std::vector<Stretch>& curve) {
    for (const Stretch& stretch : curve) {
      for (int second = 0; second < stretch.seconds; ++second) {
        now_ns_ += 1'000'000'000;
        sample_.taken_bytes += stretch.taken_mib_per_s * mib;
        sample_.resident_bytes = stretch.resident_mib * mib;
        double share = policy.heap() == "tcmalloc" ? stretch.tcmalloc_cpu_share : stretch.cpu_share;
        if (now_ns_ - switched_ns_ <= 3'000'000'000) share += stretch.cold_cpu_share;
        sample_.cpu_ns += static_cast<std::uint64_t>(share * 1e9);
        step();
      }
    }
  }

  AllocatorPolicy policy;
  std::vector<std::string> heaps;  // in the order of the decisions
  std::vector<std::string> reasons;

 private:
  void step() {
    sample_.now_ns = now_ns_;
    sample_.limit_bytes = limit_mib_ * mib;
    const auto decision = policy.step(sample_);
    if (!decision) return;
    switched_ns_ = now_ns_;
    heaps.emplace_back(decision->heap);
    reasons.push_back(decision->reason);
  }

  std::uint64_t limit_mib_;
  std::int64_t now_ns_ = 0;
  std::int64_t switched_ns_ = 0;
  PolicySample sample_;
};

using Heaps = std::vector<std::string>;

// Merged scans of large batches; tcmalloc saves a tenth, or nothing.
constexpr Stretch saving{60, 400, 400, 0.5, 0.45};
constexpr Stretch even{60, 400, 400, 0.5, 0.49};
constexpr Stretch idle{60, 0, 60, 0.001, 0.001};
constexpr Stretch ten_minutes_idle{600, 0, 60, 0.001, 0.001};
constexpr Stretch point_reads{60, 0, 80, 0.9, 0.9};
const Heaps tried{"jemalloc", "tcmalloc", "jemalloc"};
const Heaps tried_and_taken{"jemalloc", "tcmalloc", "jemalloc", "tcmalloc"};

TEST_CASE("auto begins with jemalloc and tries nothing without a load", "[policy]") {
  Life life(4096);
  life.live({idle, point_reads, idle});
  CHECK(life.heaps == Heaps{"jemalloc"});
  CHECK(life.policy.switches() == 0);
  CHECK(life.policy.evaluations() == 181);
}

TEST_CASE("tcmalloc serves once a trial of both has shown that it saves CPU", "[policy]") {
  for (const std::uint64_t limit_mib : {0, 700, 4096}) {
    Life life(limit_mib);
    life.live({saving, idle});
    CHECK(life.heaps == tried_and_taken);
    CHECK(life.reasons.back() == "tried in turn: 1192 us of CPU per MB with jemalloc, 1073 with tcmalloc");
    CHECK(life.policy.inputs().trials == 1);
  }
}

TEST_CASE("where both take the same CPU, or a little less with tcmalloc, jemalloc serves", "[policy]") {
  Life life(4096);
  life.live({even, even});
  CHECK(life.heaps == tried);
  CHECK(life.policy.inputs().trials == 1);
}

TEST_CASE("what pages cost after a switch does not count", "[policy]") {
  Life cold(4096);
  cold.live({{60, 400, 400, 0.5, 0.45, 0.4}});
  CHECK(cold.heaps == tried_and_taken);
  CHECK(cold.reasons.back() == "tried in turn: 1192 us of CPU per MB with jemalloc, 1073 with tcmalloc");
}

TEST_CASE("a load that grows or sinks meanwhile favours neither", "[policy]") {
  Life life(4096);
  std::vector<Stretch> sinking;
  for (int second = 0; second < 60; ++second) {
    const double share = 0.9 - 0.01 * second;
    sinking.push_back({1, 400, 400, share, share});
  }
  life.live(sinking);
  CHECK(life.heaps == tried);
  CHECK(life.policy.inputs().jemalloc_cpu_us_per_mb ==
        Approx(life.policy.inputs().tcmalloc_cpu_us_per_mb).epsilon(0.01));
}

TEST_CASE("it is tried again after ten minutes, and the new result holds", "[policy]") {
  Life life(4096);
  life.live({saving});
  REQUIRE(life.heaps == tried_and_taken);
  SECTION("tcmalloc saves no more") {
    life.live({ten_minutes_idle, even});
    CHECK(life.policy.heap() == "jemalloc");
    CHECK(life.policy.inputs().trials == 2);
  }
  SECTION("it still does: it serves in the first turn, and in the last") {
    const std::uint64_t before = life.policy.switches();
    life.live({ten_minutes_idle, saving});
    CHECK(life.policy.heap() == "tcmalloc");
    CHECK(life.policy.switches() == before + 2);
  }
  SECTION("not before") {
    life.live({{500, 400, 400, 0.5, 0.49}});
    CHECK(life.heaps == tried_and_taken);
  }
}

TEST_CASE("a burst that ends before a trial does decides nothing", "[policy]") {
  Life life(4096);
  for (int minute = 0; minute < 60; ++minute) life.live({{25, 400, 400, 0.5, 0.4}, {35, 0, 60, 0.01, 0.01}});
  CHECK(life.policy.heap() == "jemalloc");
  CHECK(life.policy.inputs().trials == 0);
}

TEST_CASE("when memory is tight jemalloc serves, without waiting, until the next trial", "[policy]") {
  Life life(4096);
  constexpr Stretch tight{2, 400, 3900, 0.5, 0.45};
  SECTION("after a trial") { life.live({saving}); }
  SECTION("during one") { life.live({{15, 400, 400, 0.5, 0.45}}); }
  REQUIRE(life.policy.heap() == "tcmalloc");
  life.live({tight});
  CHECK(life.policy.heap() == "jemalloc");
  CHECK(life.reasons.back() == "memory is tight");
  life.live({{590, 400, 400, 0.5, 0.45}});
  CHECK(life.policy.heap() == "jemalloc");
  life.live({saving});
  CHECK(life.policy.heap() == "tcmalloc");
}

TEST_CASE("a fixed choice is followed at once and never left", "[policy]") {
  Life life(700, AllocatorChoice::system);
  life.live({saving, idle});
  CHECK(life.heaps == Heaps{"system"});
  life.policy.choose(AllocatorChoice::tcmalloc);
  life.live({{1, 0, 650, 0.1, 0.1}});
  CHECK(life.heaps == Heaps{"system", "tcmalloc"});
  CHECK(life.reasons.back() == "memory.allocator says so");
  life.policy.choose(AllocatorChoice::automatic);
  life.live({idle});
  CHECK(life.heaps == Heaps{"system", "tcmalloc", "jemalloc"});
}

TEST_CASE("names of choices are those of the configuration", "[policy]") {
  for (const char* name : {"auto", "jemalloc", "tcmalloc", "system"}) {
    const auto choice = find_allocator_choice(name);
    REQUIRE(choice);
    CHECK(allocator_choice_name(*choice) == name);
  }
  CHECK_FALSE(find_allocator_choice("mimalloc"));
}

}  // namespace
}  // namespace spillway
