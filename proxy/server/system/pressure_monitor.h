// PressureMonitor: samples memory pressure on a loop, logs each change of level once, and publishes
// it.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <optional>

#include "allocator/budget.h"
#include "allocator/pressure_source.h"
#include "proxy/base/loop.h"

namespace spillway::server {

// All methods are for the loop's thread. The loop, the budget and `pressure` outlive it.
class PressureMonitor final : public Timer {
 public:
  PressureMonitor(Loop& loop, const MemoryBudget& process, Pressure& pressure,
                  PressureSource source);
  ~PressureMonitor() override;

  void start();
  void stop();

 private:
  void on_timer() override;
  void wait_for_signal();
  void sample(bool signalled);

  Loop& loop_;
  const MemoryBudget& process_;
  Pressure& pressure_;
  PressureSource source_;
  PressureFsm fsm_;
  std::optional<asio::posix::stream_descriptor> signal_;
  bool waiting_ = false;
  // Cleared when this object ends: a signal's handler may still be queued then.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// The cgroup, and the service manager's watch; without one a trigger of our own on the PSI file, as
// far as the kernel allows it. Logs what is watched.
PressureSource open_pressure_source();

}  // namespace spillway::server
