#include "allocator/memory_layer.h"

#include <sys/resource.h>

#include "allocator/buffer_heaps.h"
#include "allocator/heaps.h"
#include "allocator/retention.h"

namespace spillway {

namespace {

PolicySample sample_process(std::int64_t now_ns, std::uint64_t limit_bytes) noexcept {
  PolicySample sample;
  sample.now_ns = now_ns;
  sample.limit_bytes = limit_bytes;
  sample.resident_bytes = process_resident_bytes();
  sample.taken_bytes = heap_counters().taken_bytes;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto nanos = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_usec) * 1'000;
  };
  sample.cpu_ns = nanos(usage.ru_utime) + nanos(usage.ru_stime);
  return sample;
}

bool can_choose() { return find_heap("jemalloc") != nullptr && find_heap("tcmalloc") != nullptr; }

}  // namespace

std::optional<std::string> missing_heap(AllocatorChoice choice) {
  if (choice == AllocatorChoice::automatic || find_heap(allocator_choice_name(choice)) != nullptr) {
    return std::nullopt;
  }
  std::string text =
      "this build has no heap \"" + std::string(allocator_choice_name(choice)) + "\", only ";
  for (const Heap* heap : linked_heaps()) {
    text += (heap == linked_heaps().front() ? "" : ", ") + std::string(heap->name());
  }
  return text;
}

MemoryLayer::MemoryLayer() : policy_(AllocatorChoice::automatic, {}), releaser_({}) {}

MemoryLayer::~MemoryLayer() { stop(); }

std::optional<std::string> MemoryLayer::start(MemoryLayerSettings settings, OnSwitch on_switch,
                                              Releaser::FlushCaches flush_caches) {
  if (auto missing = missing_heap(settings.choice)) return missing;
  std::optional<PolicyDecision> decision;
  {
    const std::lock_guard lock(mutex_);
    limit_bytes_ = settings.limit_bytes;
    policy_ = AllocatorPolicy(settings.choice, settings.rule);
    on_switch_ = std::move(on_switch);
    started_ = true;
    decision = sample_locked(steady_now_ns());
  }
  if (decision) BufferHeaps::select(decision->heap);
  releaser_.set_settings(settings.release);
  releaser_.start(std::move(flush_caches));
  const auto give_back = [](void* releaser) noexcept {
    static_cast<Releaser*>(releaser)->request(ReleaseReason::pressure);
  };
  const std::uint64_t base = process_resident_bytes();
  if (settings.limit_bytes > base)
    Retention::set_up(settings.limit_bytes - base, give_back, &releaser_);
  return std::nullopt;
}

void MemoryLayer::stop() {
  if (releaser_.running()) Retention::reset();
  releaser_.stop();
}

std::optional<PolicyDecision> MemoryLayer::sample_locked(std::int64_t now_ns) {
  if (!started_) return std::nullopt;
  // With one heap there is nothing to choose between.
  if (policy_.choice() == AllocatorChoice::automatic && !can_choose()) return std::nullopt;
  return policy_.step(sample_process(now_ns, limit_bytes_));
}

void MemoryLayer::apply(const std::optional<PolicyDecision>& decision) {
  if (!decision) return;
  BufferHeaps::select(decision->heap);
  if (on_switch_) on_switch_(*decision);
  releaser_.request(ReleaseReason::switched);
}

void MemoryLayer::tick(std::int64_t now_ns) {
  releaser_.tick(now_ns);
  Retention::review(now_ns);
  std::optional<PolicyDecision> decision;
  {
    const std::lock_guard lock(mutex_);
    if (!policy_.due(now_ns)) return;
    decision = sample_locked(now_ns);
  }
  apply(decision);
}

std::optional<std::string> MemoryLayer::choose(AllocatorChoice choice) {
  if (auto missing = missing_heap(choice)) return missing;
  std::optional<PolicyDecision> decision;
  {
    const std::lock_guard lock(mutex_);
    policy_.choose(choice);
    if (choice != AllocatorChoice::automatic) decision = sample_locked(steady_now_ns());
  }
  apply(decision);
  return std::nullopt;
}

AllocatorChoice MemoryLayer::choice() const {
  const std::lock_guard lock(mutex_);
  return policy_.choice();
}

MemoryAccount MemoryLayer::account() const {
  MemoryAccount account;
  account.resident_bytes = process_resident_bytes();
  account.malloc_library = plain_malloc::library();
  account.malloc_kind = plain_malloc::kind();
  account.malloc_usage = plain_malloc::usage();
  for (const Heap* heap : linked_heaps()) {
    account.heaps.push_back({heap->name(), heap == &BufferHeaps::current(), heap->usage()});
  }
  {
    const std::lock_guard lock(mutex_);
    account.choice = policy_.choice();
    account.policy_reason = policy_.reason();
    account.policy_inputs = policy_.inputs();
    account.policy_evaluations = policy_.evaluations();
    account.switches = policy_.switches();
    if (policy_.switches() > 0) account.last_switch_ns = policy_.last_switch_ns();
  }
  account.keeps_freed = Retention::allowed();
  account.times_kept_nothing = Retention::times_ended();
  account.release_threshold_bytes = releaser_.threshold();
  account.releases = releaser_.statistics();
  return account;
}

std::string MemoryLayer::description() const {
  return "malloc: " + plain_malloc::library() +
         ", buffers: " + std::string(BufferHeaps::current().name()) +
         " (memory.allocator: " + std::string(allocator_choice_name(choice())) + ")";
}

}  // namespace spillway
