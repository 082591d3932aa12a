// The rule of memory.allocator: auto, on curves recorded from a running proxy (bench/curves).
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/units.h"

#include "allocator/policy.h"

namespace spillway {
namespace {

using test::mib;

std::vector<PolicySample> recorded(const std::string& name) {
  const std::string path = std::string(SPILLWAY_CURVES) + "/" + name + ".csv";
  std::ifstream file(path);
  INFO(path);
  REQUIRE(file);
  std::string line;
  std::getline(file, line);
  REQUIRE(line == "second,limit_bytes,resident_bytes,taken_bytes,page_faults,cpu_ns");
  std::vector<PolicySample> samples;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    PolicySample sample;
    std::int64_t second = 0;
    char comma = 0;
    fields >> second >> comma >> sample.limit_bytes >> comma >> sample.resident_bytes >> comma >>
        sample.taken_bytes >> comma >> sample.page_faults >> comma >> sample.cpu_ns;
    REQUIRE(fields);
    sample.now_ns = second * 1'000'000'000;
    samples.push_back(sample);
  }
  REQUIRE(samples.size() >= 40);
  return samples;
}

// Curves one after the other, as one process would live through them.
struct Outcome {
  std::vector<std::string> heaps;  // in the order of the decisions
  std::vector<std::int64_t> seconds;
  std::uint64_t switches = 0;
  PolicyInputs inputs;
};

Outcome live(const std::vector<std::string>& names, std::uint64_t limit_mib, double fault_cost_ns) {
  PolicyRule rule;
  rule.fault_cost_ns = fault_cost_ns;
  AllocatorPolicy policy(AllocatorChoice::automatic, rule);
  Outcome outcome;
  PolicySample total;
  for (const std::string& name : names) {
    PolicySample before;
    for (const PolicySample& sample : recorded(name)) {
      total.limit_bytes = limit_mib * mib;
      total.resident_bytes = sample.resident_bytes;
      if (sample.now_ns > 0) {
        total.now_ns += sample.now_ns - before.now_ns;
        total.taken_bytes += sample.taken_bytes - before.taken_bytes;
        total.cpu_ns += sample.cpu_ns - before.cpu_ns;
        // Under tcmalloc the kept pages would have spared these.
        if (policy.heap() == "jemalloc") {
          total.page_faults += sample.page_faults - before.page_faults;
        }
      } else {
        total.now_ns += 1'000'000'000;
      }
      before = sample;
      if (const auto decision = policy.step(total)) {
        outcome.heaps.emplace_back(decision->heap);
        outcome.seconds.push_back(total.now_ns / 1'000'000'000);
      }
    }
  }
  outcome.switches = policy.switches();
  outcome.inputs = policy.inputs();
  return outcome;
}

using Heaps = std::vector<std::string>;

// What a page fault costs: on hardware, on most virtual machines, on a slow one.
constexpr double cheap_ns = 100, usual_ns = 500, dear_ns = 1000;

TEST_CASE("recorded: an idle proxy and point reads stay with jemalloc", "[policy][curves]") {
  for (const double cost_ns : {cheap_ns, usual_ns, dear_ns}) {
    for (const std::uint64_t limit_mib : {128U, 1024U}) {
      const Outcome outcome = live({"idle", "idle", "idle"}, limit_mib, cost_ns);
      CHECK(outcome.heaps == Heaps{"jemalloc"});
      CHECK(outcome.switches == 0);
      CHECK(outcome.inputs.heavy_share == 0);
      CHECK(outcome.inputs.fault_cpu_share == 0);
    }
  }
}

TEST_CASE("recorded: a burst of ten seconds is not worth a switch", "[policy][curves]") {
  // Its faults took 0.6 % of the CPU at the usual cost, 1.2 % at the dear one.
  for (const double cost_ns : {cheap_ns, usual_ns}) {
    for (const std::uint64_t limit_mib : {400U, 1024U, 4096U}) {
      const Outcome outcome = live({"burst", "burst", "burst"}, limit_mib, cost_ns);
      CHECK(outcome.heaps == Heaps{"jemalloc"});
      CHECK(outcome.switches == 0);
    }
  }
}

TEST_CASE("recorded: steady scans whose faults cost less than 2 % stay with jemalloc",
          "[policy][curves]") {
  // 254,449 faults and 7.43 s of CPU: 1.7 % at the usual cost, in bursts of up to 9 %.
  for (const double cost_ns : {cheap_ns, usual_ns}) {
    for (const std::uint64_t limit_mib : {256U, 1024U}) {
      const Outcome outcome = live({"steady", "steady"}, limit_mib, cost_ns);
      INFO("fault share " << outcome.inputs.fault_cpu_share);
      CHECK(outcome.heaps == Heaps{"jemalloc"});
      CHECK(outcome.switches == 0);
      CHECK(outcome.inputs.heavy_share > 0.9);
    }
  }
}

TEST_CASE("recorded: steady scans with dear faults bring tcmalloc once, and it stays",
          "[policy][curves]") {
  for (const std::uint64_t limit_mib : {256U, 1024U}) {
    const Outcome outcome = live({"steady", "steady", "steady"}, limit_mib, dear_ns);
    CHECK(outcome.heaps == Heaps{"jemalloc", "tcmalloc"});
    CHECK(outcome.switches == 1);
    CHECK(outcome.seconds.back() <= 60);
  }
}

TEST_CASE("recorded: a day in short has one switch each way", "[policy][curves]") {
  const Outcome outcome =
      live({"idle", "steady", "steady", "burst", "idle", "idle", "idle"}, 50, dear_ns);
  INFO("free share " << outcome.inputs.free_share);
  CHECK(outcome.heaps == Heaps{"jemalloc"});
  const Outcome larger =
      live({"idle", "steady", "steady", "burst", "idle", "idle", "steady"}, 1024, dear_ns);
  CHECK(larger.heaps == Heaps{"jemalloc", "tcmalloc"});
}

TEST_CASE("recorded: scans that now and then leave little free do not make it flap",
          "[policy][curves]") {
  // RSS swings between 36 and 174 MiB, twice or thrice a minute.
  const Outcome outcome = live({"steady", "steady", "steady", "steady"}, 190, dear_ns);
  CHECK(outcome.switches <= 2);
}

}  // namespace
}  // namespace spillway
