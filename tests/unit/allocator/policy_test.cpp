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
  std::uint64_t faults_per_s;
  double cpu_share;
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
        // Kept pages need no faults.
        if (policy.heap() == "jemalloc") sample_.page_faults += stretch.faults_per_s;
        sample_.cpu_ns += static_cast<std::uint64_t>(stretch.cpu_share * 1e9);
        step();
      }
    }
  }

  AllocatorPolicy policy;
  std::vector<std::string> heaps;  // in the order of the decisions
  std::vector<std::string> reasons;
  std::vector<std::int64_t> seconds;

 private:
  void step() {
    sample_.now_ns = now_ns_;
    sample_.limit_bytes = limit_mib_ * mib;
    const auto decision = policy.step(sample_);
    if (!decision) return;
    heaps.emplace_back(decision->heap);
    reasons.push_back(decision->reason);
    seconds.push_back(now_ns_ / 1'000'000'000);
  }

  std::uint64_t limit_mib_;
  std::int64_t now_ns_ = 0;
  PolicySample sample_;
};

using Heaps = std::vector<std::string>;

// Merged scans of large batches, each page new to the process: 25,000 faults take 12.5 ms a second.
constexpr Stretch scans{60, 400, 400, 25'000, 0.2};
constexpr Stretch idle{60, 0, 60, 10, 0.001};
constexpr Stretch point_reads{60, 0, 80, 100, 0.9};

TEST_CASE("auto begins with jemalloc and stays there while there is nothing to gain", "[policy]") {
  Life life(4096);
  life.live({idle, point_reads, idle});
  CHECK(life.heaps == Heaps{"jemalloc"});
  CHECK(life.policy.switches() == 0);
  CHECK(life.policy.evaluations() == 181);
}

TEST_CASE("heavy scans most of the time bring tcmalloc, their end jemalloc", "[policy]") {
  // Neither plenty of memory nor a lack of it.
  Life life(700);
  life.live({{60, 400, 400, 25'000, 0.2}});
  CHECK(life.heaps == Heaps{"jemalloc", "tcmalloc"});
  CHECK(life.reasons.back().find("heavy scans most of the time") != std::string::npos);
  CHECK(life.reasons.back().find("% of memory.limit free") != std::string::npos);
  life.live({{90, 0, 450, 10, 0.01}});
  CHECK(life.heaps == Heaps{"jemalloc", "tcmalloc", "jemalloc"});
  CHECK(life.reasons.back().find("neither") != std::string::npos);
}

TEST_CASE("scans whose faults cost next to nothing stay with jemalloc", "[policy]") {
  Life life(700);
  life.live({{120, 400, 400, 3'000, 0.2}});  // 1.5 ms of 200
  CHECK(life.heaps == Heaps{"jemalloc"});
  CHECK(life.policy.inputs().heavy_share > 0.9);
  CHECK(life.policy.inputs().fault_cpu_share < 0.02);
}

TEST_CASE("plenty of memory is enough, once a load has shown what faults cost", "[policy]") {
  Life life(4096);
  life.live({idle});
  CHECK(life.heaps == Heaps{"jemalloc"});
  life.live({{10, 400, 400, 25'000, 0.2}, {5, 0, 60, 10, 0.001}});
  CHECK(life.heaps == Heaps{"jemalloc", "tcmalloc"});
  CHECK(life.reasons.back().find("plenty of memory") != std::string::npos);
}

TEST_CASE("when memory is tight jemalloc serves, without waiting", "[policy]") {
  Life life(4096);
  life.live({scans});
  REQUIRE(life.heaps == Heaps{"jemalloc", "tcmalloc"});
  life.live({{2, 400, 3900, 0, 0.2}});
  CHECK(life.heaps == Heaps{"jemalloc", "tcmalloc", "jemalloc"});
  CHECK(life.reasons.back().find("tight") != std::string::npos);
}

TEST_CASE("a load that comes and goes does not make it flap", "[policy]") {
  Life life(700);
  for (int minute = 0; minute < 60; ++minute) {
    life.live({{20, 400, 400, 25'000, 0.2}, {30, 0, 430, 10, 0.01}});
  }
  // 40 % of the time: between the threshold to enter and the one to leave.
  CHECK(life.policy.switches() <= 2);
  for (std::size_t i = 2; i < life.seconds.size(); ++i)
    CHECK(life.seconds[i] - life.seconds[i - 1] >= 30);
}

TEST_CASE("free memory around a threshold does not make it flap", "[policy]") {
  Life life(1000);
  life.live({{60, 400, 300, 25'000, 0.2}, {120, 0, 300, 10, 0.01}});
  const std::uint64_t before = life.policy.switches();
  for (int i = 0; i < 100; ++i) life.live({{5, 0, 390, 10, 0.01}, {5, 0, 410, 10, 0.01}});
  CHECK(life.policy.switches() <= before + 1);
}

TEST_CASE("a fixed choice is followed at once and never left", "[policy]") {
  Life life(700, AllocatorChoice::system);
  life.live({scans, idle});
  CHECK(life.heaps == Heaps{"system"});
  life.policy.choose(AllocatorChoice::tcmalloc);
  life.live({{1, 0, 650, 0, 0.1}});
  CHECK(life.heaps == Heaps{"system", "tcmalloc"});
  CHECK(life.reasons.back() == "memory.allocator says so");
}

TEST_CASE("without a limit there is plenty of memory", "[policy]") {
  Life life(0);
  life.live({{40, 400, 3000, 25'000, 0.2}});
  CHECK(life.heaps == Heaps{"jemalloc", "tcmalloc"});
  CHECK(life.policy.inputs().free_share == 1.0);
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
