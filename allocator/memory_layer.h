// MemoryLayer: what ties the heaps together for one process: which heap serves (policy.h), when
// free memory goes back (release.h), and one account of it all.
//
// Made once, outlives every buffer's last release. Any thread, unless said otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/policy.h"
#include "allocator/release.h"

namespace spillway {

struct MemoryLayerSettings {
  AllocatorChoice choice = AllocatorChoice::automatic;
  std::uint64_t limit_bytes = 0;  // memory.limit; 0: none
  PolicyRule rule;
  ReleaseSettings release;
};

struct HeapAccount {
  std::string_view name;
  bool current = false;
  HeapUsage usage;
};

// Everything at (nearly) one moment.
struct MemoryAccount {
  std::uint64_t resident_bytes = 0;
  std::string malloc_library;  // the file that serves plain malloc
  std::string_view malloc_kind;
  HeapUsage malloc_usage;
  std::vector<HeapAccount> heaps;

  AllocatorChoice choice = AllocatorChoice::automatic;
  std::string policy_reason;
  PolicyInputs policy_inputs;
  std::uint64_t policy_evaluations = 0;
  std::uint64_t switches = 0;
  std::optional<std::int64_t> last_switch_ns;  // steady; none: never

  bool keeps_freed = true;               // retention.h
  std::uint64_t times_kept_nothing = 0;  // that this ended
  std::uint64_t release_threshold_bytes = 0;
  ReleaserStatistics releases;
};

class MemoryLayer {
 public:
  // Called on whichever thread ticks or chooses; may log.
  using OnSwitch = std::function<void(const PolicyDecision&)>;

  MemoryLayer();
  ~MemoryLayer();
  MemoryLayer(const MemoryLayer&) = delete;
  MemoryLayer& operator=(const MemoryLayer&) = delete;

  // Selects the first heap and starts the releasing thread. An error's text: the build lacks the
  // heap. Until start() the build's first heap serves and nothing is released.
  std::optional<std::string> start(MemoryLayerSettings settings, OnSwitch on_switch,
                                   Releaser::FlushCaches flush_caches);
  void stop();

  // A few times a second, from one thread. Steady time.
  void tick(std::int64_t now_ns);

  // The choice from now on. An error's text: the build lacks the heap; nothing changed.
  std::optional<std::string> choose(AllocatorChoice choice);
  AllocatorChoice choice() const;

  Releaser& releaser() noexcept { return releaser_; }
  MemoryAccount account() const;

  // The text for the start-up line: "malloc: libjemalloc.so.2, buffers: jemalloc (auto)".
  std::string description() const;

 private:
  std::optional<PolicyDecision> sample_locked(std::int64_t now_ns);
  void apply(const std::optional<PolicyDecision>& decision);

  mutable std::mutex mutex_;
  bool started_ = false;
  std::uint64_t limit_bytes_ = 0;
  AllocatorPolicy policy_;
  OnSwitch on_switch_;
  Releaser releaser_;
};

// "" or why this build cannot do it.
std::optional<std::string> missing_heap(AllocatorChoice choice);

}  // namespace spillway
