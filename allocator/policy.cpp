#include "allocator/policy.h"

#include <algorithm>
#include <cstdio>

namespace spillway {

namespace {

constexpr std::array<std::string_view, 4> choice_names = {"auto", "jemalloc", "tcmalloc", "system"};

// What a heavy second weighs beside the next one: two fifths are left after a minute.
constexpr double fading = 0.985;

std::uint64_t difference(std::uint64_t now, std::uint64_t before) noexcept {
  return now > before ? now - before : 0;
}

std::string describe(const char* why, const PolicyInputs& inputs) {
  std::array<char, 256> text;
  std::snprintf(
      text.data(), text.size(),
      "%s (heavy scans in %.0f %% of the last seconds, %.0f %% of memory.limit free, page "
      "faults %.1f %% of the CPU)",
      why, inputs.heavy_share * 100, inputs.free_share * 100, inputs.fault_cpu_share * 100);
  return text.data();
}

}  // namespace

std::string_view allocator_choice_name(AllocatorChoice choice) noexcept {
  return choice_names[static_cast<std::size_t>(choice)];
}

std::optional<AllocatorChoice> find_allocator_choice(std::string_view name) noexcept {
  const auto found = std::find(choice_names.begin(), choice_names.end(), name);
  if (found == choice_names.end()) return std::nullopt;
  return static_cast<AllocatorChoice>(found - choice_names.begin());
}

AllocatorPolicy::AllocatorPolicy(AllocatorChoice choice, PolicyRule rule) noexcept
    : choice_(choice), rule_(rule) {}

void AllocatorPolicy::measure(const PolicySample& sample) noexcept {
  inputs_.free_share = 1;
  if (sample.limit_bytes > 0) {
    inputs_.free_share =
        static_cast<double>(difference(sample.limit_bytes, sample.resident_bytes)) /
        static_cast<double>(sample.limit_bytes);
  }
  const double seconds = static_cast<double>(sample.now_ns - last_->now_ns) * 1e-9;
  const auto taken = static_cast<double>(difference(sample.taken_bytes, last_->taken_bytes));
  const bool heavy = taken >= static_cast<double>(rule_.heavy_bytes_per_s) * seconds;
  heavy_[next_] = heavy;
  next_ = (next_ + 1) % window;
  ++inputs_.samples;
  const std::size_t seen = std::min<std::size_t>(inputs_.samples, window);
  inputs_.heavy_share = static_cast<double>(std::count(heavy_.begin(), heavy_.end(), true)) /
                        static_cast<double>(seen);
  const auto cpu_ns = static_cast<double>(difference(sample.cpu_ns, last_->cpu_ns));
  // With tcmalloc there are no faults to measure: what jemalloc's time has shown stands.
  if (heavy && heap_ == "jemalloc" && cpu_ns > 0) {
    const auto faults = static_cast<double>(difference(sample.page_faults, last_->page_faults));
    // Of sums: faults come in bursts, after each of jemalloc's releases.
    heavy_fault_ns_ = fading * heavy_fault_ns_ + faults * rule_.fault_cost_ns;
    heavy_cpu_ns_ = fading * heavy_cpu_ns_ + cpu_ns;
    inputs_.fault_cpu_share = std::min(1.0, heavy_fault_ns_ / heavy_cpu_ns_);
  }
}

std::string_view AllocatorPolicy::wanted(const PolicySample& sample, std::string& reason) {
  if (choice_ != AllocatorChoice::automatic) {
    reason = "memory.allocator says so";
    return allocator_choice_name(choice_);
  }
  heavy_mostly_ =
      inputs_.heavy_share >= (heavy_mostly_ ? rule_.heavy_share_leave : rule_.heavy_share_enter);
  plenty_ = inputs_.free_share >= (plenty_ ? rule_.plenty_share_leave : rule_.plenty_share_enter);
  if (sample.now_ns - first_ns_ < rule_.settle_ns) {
    reason = "auto begins with jemalloc";
    return heap_.empty() ? "jemalloc" : heap_;
  }
  if (inputs_.free_share < rule_.tight_share) {
    tight_ns_ = sample.now_ns;
    reason = describe("memory is tight", inputs_);
    return "jemalloc";
  }
  if (tight_ns_ && sample.now_ns - *tight_ns_ < rule_.calm_ns) {
    reason = describe("memory was tight", inputs_);
    return "jemalloc";
  }
  if (!heavy_mostly_ && !plenty_) {
    reason = describe("neither heavy scans nor plenty of memory", inputs_);
    return "jemalloc";
  }
  if (inputs_.fault_cpu_share < rule_.benefit_least) {
    reason = describe("kept pages would save too little", inputs_);
    return "jemalloc";
  }
  reason = describe(heavy_mostly_ ? "heavy scans most of the time" : "plenty of memory", inputs_);
  return "tcmalloc";
}

std::optional<PolicyDecision> AllocatorPolicy::decide(std::string_view heap, std::string reason,
                                                      std::int64_t now_ns) {
  if (!heap_.empty()) {
    ++switches_;
    last_switch_ns_ = now_ns;
  }
  heap_ = heap;
  reason_ = std::move(reason);
  return PolicyDecision{heap_, reason_, inputs_};
}

std::optional<PolicyDecision> AllocatorPolicy::step(const PolicySample& sample) {
  if (!last_) {
    first_ns_ = sample.now_ns;
    last_ = sample;
  } else if (sample.now_ns - last_->now_ns >= rule_.sample_ns) {
    measure(sample);
    last_ = sample;
  } else if (choice_ == AllocatorChoice::automatic) {
    return std::nullopt;
  }
  ++evaluations_;
  std::string reason;
  const std::string_view heap = wanted(sample, reason);
  if (heap == heap_) return std::nullopt;
  const bool may_wait = choice_ == AllocatorChoice::automatic && switches_ > 0;
  const bool tight = inputs_.free_share < rule_.tight_share;
  if (may_wait && !tight && sample.now_ns - last_switch_ns_ < rule_.dwell_ns) return std::nullopt;
  return decide(heap, std::move(reason), sample.now_ns);
}

}  // namespace spillway
