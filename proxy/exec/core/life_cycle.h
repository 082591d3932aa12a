// LifeCycle: how far a shutdown is. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace spillway::exec {

struct LifeCycle {
  // A shutdown was announced: hello fails, the rest goes on until `stopping`.
  std::atomic<bool> quiescing{false};
  std::atomic<std::int64_t> quiesce_end_ns{0};  // steady clock; set before `quiescing`
  std::atomic<bool> stopping{false};            // only requests under way go on
  // Another process serves the clients. Cursors here have no connections any more. Change streams, which would never
  // end, do at their next getMore: drivers open them again where they were.
  std::atomic<bool> replaced{false};
  std::atomic<std::int64_t> topology_counter{0};  // hello's topologyVersion.counter
  // The shutdown command: asks the process to end. Empty: not supported.
  std::function<void(std::chrono::milliseconds announce)> request_shutdown;
};

}  // namespace spillway::exec
