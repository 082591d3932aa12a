// memory.allocator: which heap new payload comes from, and the rule of `auto`.
//
// Pure: time and measurements are parameters. Not thread-safe.
//
// The rule: heavy scans most of the time, or plenty of memory, want tcmalloc, which keeps freed
// pages for the next scan; everything else wants jemalloc, whose free memory goes back while the
// proxy is busy too. But kept pages only help if page faults cost something: where they take less
// than 2 % of the CPU, jemalloc serves just as fast and holds less.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// In the order of the words of memory.allocator.
enum class AllocatorChoice : std::uint8_t { automatic, jemalloc, tcmalloc, system };
std::string_view allocator_choice_name(AllocatorChoice choice) noexcept;
std::optional<AllocatorChoice> find_allocator_choice(std::string_view name) noexcept;

// Counters of the process as they stand at the moment of a sample.
struct PolicySample {
  std::int64_t now_ns = 0;        // steady
  std::uint64_t limit_bytes = 0;  // memory.limit; 0: none
  std::uint64_t resident_bytes = 0;
  std::uint64_t taken_bytes = 0;  // by payload blocks, ever
  std::uint64_t page_faults = 0;  // ever
  std::uint64_t cpu_ns = 0;       // ever
};

struct PolicyRule {
  std::int64_t sample_ns = 1'000'000'000;      // one sample per second counts
  std::int64_t settle_ns = 20'000'000'000;     // of samples, before the first decision
  std::int64_t dwell_ns = 30'000'000'000;      // between two switches
  std::uint64_t heavy_bytes_per_s = 16 << 20;  // a second that takes more is one of heavy scans
  double heavy_share_enter = 0.5, heavy_share_leave = 0.25;   // of the last minute's seconds
  double plenty_share_enter = 0.6, plenty_share_leave = 0.4;  // of the limit, free
  double tight_share = 0.15;              // less of the limit free: jemalloc, whatever the load,
  std::int64_t calm_ns = 60'000'000'000;  // and for so long after
  double benefit_least = 0.02;            // of the CPU that page faults cost
  double fault_cost_ns = 500;             // of one page; measured at start
};

// What the last decision was made of; shares are of 1.
struct PolicyInputs {
  double heavy_share = 0;
  double free_share = 1;       // of the limit; 1 without one
  double fault_cpu_share = 0;  // measured while jemalloc served; 0 until there was load
  std::uint64_t samples = 0;
};

struct PolicyDecision {
  std::string_view heap;
  std::string reason;  // with its inputs, for the log
  PolicyInputs inputs;
};

class AllocatorPolicy {
 public:
  AllocatorPolicy(AllocatorChoice choice, PolicyRule rule) noexcept;

  // The heap wanted now, if it is another than before (the first sample always decides).
  std::optional<PolicyDecision> step(const PolicySample& sample);
  // Whether step() would look at a sample of this time at all.
  bool due(std::int64_t now_ns) const noexcept {
    return !last_ || now_ns - last_->now_ns >= rule_.sample_ns;
  }
  void choose(AllocatorChoice choice) noexcept { choice_ = choice; }

  AllocatorChoice choice() const noexcept { return choice_; }
  const PolicyInputs& inputs() const noexcept { return inputs_; }
  std::string_view heap() const noexcept { return heap_; }
  const std::string& reason() const noexcept { return reason_; }
  std::uint64_t evaluations() const noexcept { return evaluations_; }
  std::uint64_t switches() const noexcept { return switches_; }
  std::int64_t last_switch_ns() const noexcept { return last_switch_ns_; }

 private:
  void measure(const PolicySample& sample) noexcept;
  std::string_view wanted(const PolicySample& sample, std::string& reason);
  std::optional<PolicyDecision> decide(std::string_view heap, std::string reason,
                                       std::int64_t now_ns);

  static constexpr std::size_t window = 60;

  AllocatorChoice choice_;
  PolicyRule rule_;
  PolicyInputs inputs_;
  std::optional<PolicySample> last_;
  std::array<bool, window> heavy_{};
  std::size_t next_ = 0;
  double heavy_fault_ns_ = 0, heavy_cpu_ns_ = 0;  // of heavy seconds under jemalloc, fading
  std::int64_t first_ns_ = 0;
  std::optional<std::int64_t> tight_ns_;  // the last sample that was
  std::string_view heap_;
  std::string reason_;
  bool plenty_ = false, heavy_mostly_ = false;
  std::uint64_t evaluations_ = 0, switches_ = 0;
  std::int64_t last_switch_ns_ = 0;
};

}  // namespace spillway
