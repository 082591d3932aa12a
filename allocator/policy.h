// memory.allocator: which heap new payload comes from, and the rule of `auto`.
//
// Pure: time and measurements are parameters. Not thread-safe.
//
// The rule: under a lasting load both heaps are tried in turn, every ten minutes. tcmalloc serves if it took 5 % less
// CPU per byte in the last trial; otherwise, and where memory is tight, jemalloc serves.
#pragma once

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
  std::uint64_t cpu_ns = 0;       // ever
};

struct PolicyRule {
  std::int64_t sample_ns = 1'000'000'000;      // one sample per second counts
  std::uint64_t heavy_bytes_per_s = 16 << 20;  // a load that takes less is not worth a trial
  // Of a trial's four turns (this heap, the other, the other, this), in samples. The first samples pay for pages that
  // the other heap has given back. The rest must contain one of jemalloc's releases, which are 5 s apart.
  int turn_samples = 10;
  int turn_warmup_samples = 4;
  std::int64_t again_ns = 600'000'000'000;  // from a trial's end to the next one
  double gain_least = 0.05;                 // of the CPU, for tcmalloc to serve
  double tight_share = 0.15;                // less of the limit free: jemalloc, until the next trial
};

// What the last decision was made of; shares are of 1.
struct PolicyInputs {
  double free_share = 1;  // of the limit; 1 without one
  // Of the last trial: what the process used for a MB that buffers took under each heap; 0: there was none.
  double jemalloc_cpu_us_per_mb = 0;
  double tcmalloc_cpu_us_per_mb = 0;
  std::uint64_t trials = 0;  // that came to their end
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
  struct Spent {
    double cpu_ns = 0, taken_bytes = 0;
  };
  struct Trial {
    int samples = 0;
    Spent jemalloc, tcmalloc;
  };

  void observe(const PolicySample& sample);
  void note(Trial& trial, const PolicySample& sample) noexcept;
  void conclude(const Trial& trial);
  std::string_view automatic_heap() const noexcept;

  AllocatorChoice choice_;
  PolicyRule rule_;
  PolicyInputs inputs_;
  std::optional<PolicySample> last_;
  std::optional<Trial> trial_;
  std::int64_t next_trial_ns_ = 0;
  bool prefers_tcmalloc_ = false;  // what the last trial found
  std::string why_ = "auto begins with jemalloc";
  std::string_view heap_;
  std::string reason_;
  std::uint64_t evaluations_ = 0, switches_ = 0;
  std::int64_t last_switch_ns_ = 0;
};

}  // namespace spillway
