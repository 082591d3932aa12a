#include "allocator/policy.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace spillway {

namespace {

constexpr std::array<std::string_view, 4> choice_names = {"auto", "jemalloc", "tcmalloc", "system"};

std::uint64_t difference(std::uint64_t now, std::uint64_t before) noexcept {
  return now > before ? now - before : 0;
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

std::string_view AllocatorPolicy::automatic_heap() const noexcept {
  const int turn = trial_ ? trial_->samples / rule_.turn_samples : 0;
  const bool other = turn == 1 || turn == 2;
  return prefers_tcmalloc_ != other ? "tcmalloc" : "jemalloc";
}

// One more sample of a trial: how much was taken, and the CPU that it took, since the last one.
void AllocatorPolicy::note(Trial& trial, const PolicySample& sample) noexcept {
  if (trial.samples % rule_.turn_samples >= rule_.turn_warmup_samples) {
    Spent& spent = heap_ == "tcmalloc" ? trial.tcmalloc : trial.jemalloc;
    spent.cpu_ns += static_cast<double>(difference(sample.cpu_ns, last_->cpu_ns));
    spent.taken_bytes += static_cast<double>(difference(sample.taken_bytes, last_->taken_bytes));
  }
  ++trial.samples;
}

void AllocatorPolicy::conclude(const Trial& trial) {
  const auto us_per_mb = [](const Spent& spent) { return spent.cpu_ns * 1e3 / spent.taken_bytes; };
  inputs_.jemalloc_cpu_us_per_mb = us_per_mb(trial.jemalloc);
  inputs_.tcmalloc_cpu_us_per_mb = us_per_mb(trial.tcmalloc);
  ++inputs_.trials;
  prefers_tcmalloc_ = inputs_.tcmalloc_cpu_us_per_mb <= (1 - rule_.gain_least) * inputs_.jemalloc_cpu_us_per_mb;
  std::array<char, 128> text;
  std::snprintf(text.data(), text.size(), "tried in turn: %.0f us of CPU per MB with jemalloc, %.0f with tcmalloc",
                inputs_.jemalloc_cpu_us_per_mb, inputs_.tcmalloc_cpu_us_per_mb);
  why_ = text.data();
}

void AllocatorPolicy::observe(const PolicySample& sample) {
  inputs_.free_share = 1;
  if (sample.limit_bytes > 0) {
    inputs_.free_share = static_cast<double>(difference(sample.limit_bytes, sample.resident_bytes)) /
                         static_cast<double>(sample.limit_bytes);
  }
  if (inputs_.free_share < rule_.tight_share) {
    trial_.reset();
    next_trial_ns_ = sample.now_ns + rule_.again_ns;
    prefers_tcmalloc_ = false;
    why_ = "memory is tight";
    return;
  }
  const double seconds = static_cast<double>(sample.now_ns - last_->now_ns) * 1e-9;
  const auto taken = static_cast<double>(difference(sample.taken_bytes, last_->taken_bytes));
  if (choice_ != AllocatorChoice::automatic || taken < static_cast<double>(rule_.heavy_bytes_per_s) * seconds) {
    trial_.reset();
    return;
  }
  if (!trial_ && sample.now_ns >= next_trial_ns_) trial_.emplace();
  if (!trial_) return;
  note(*trial_, sample);
  if (trial_->samples < 4 * rule_.turn_samples) return;
  conclude(*trial_);
  trial_.reset();
  next_trial_ns_ = sample.now_ns + rule_.again_ns;
}

std::optional<PolicyDecision> AllocatorPolicy::step(const PolicySample& sample) {
  if (!last_) {
    last_ = sample;
  } else if (sample.now_ns - last_->now_ns >= rule_.sample_ns) {
    observe(sample);
    last_ = sample;
  } else if (choice_ == AllocatorChoice::automatic) {
    return std::nullopt;
  }
  ++evaluations_;
  const bool automatic = choice_ == AllocatorChoice::automatic;
  const std::string_view heap = automatic ? automatic_heap() : allocator_choice_name(choice_);
  if (heap == heap_) return std::nullopt;
  if (!heap_.empty()) {
    ++switches_;
    last_switch_ns_ = sample.now_ns;
  }
  heap_ = heap;
  reason_ = !automatic ? "memory.allocator says so" : trial_ ? "both are tried in turn" : why_;
  return PolicyDecision{heap_, reason_, inputs_};
}

}  // namespace spillway
