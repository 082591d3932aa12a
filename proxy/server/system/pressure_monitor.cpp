#include "proxy/server/system/pressure_monitor.h"

#include <fcntl.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "proxy/base/log.h"

namespace spillway::server {

namespace {

constexpr auto sample_interval = std::chrono::milliseconds(500);
// Tasks waited for memory during a tenth of two seconds; the shortest window that needs no
// privilege.
constexpr std::string_view own_trigger = "some 200000 2000000\n";

std::string describe(const LevelChange& change, const PressureInputs& inputs) {
  constexpr double percent = 100;
  switch (change.cause) {
    case PressureCause::budget:
      return fmt::format("{} MiB of the budget's {} MiB are reserved",
                         inputs.budget_used_bytes >> 20, inputs.budget_limit_bytes >> 20);
    case PressureCause::cgroup_max:
      return fmt::format("a cgroup is at {:.0f} % of its limit", inputs.cgroup.max_share * percent);
    case PressureCause::cgroup_high:
      return fmt::format("a cgroup is at {:.0f} % of memory.high",
                         inputs.cgroup.high_share * percent);
    case PressureCause::stall: {
      const Psi psi = inputs.psi.value_or(Psi{});
      return fmt::format("tasks waited for memory {:.1f} % of the time, all at once {:.1f} %",
                         psi.some_avg10, psi.full_avg10);
    }
    case PressureCause::signal:
      return inputs.signalled ? "the watched file signalled" : "no signal for a while";
    case PressureCause::none:
      break;
  }
  return "nothing";
}

}  // namespace

PressureMonitor::PressureMonitor(Loop& loop, const MemoryBudget& process, Pressure& pressure,
                                 PressureSource source)
    : loop_(loop), process_(process), pressure_(pressure), source_(std::move(source)) {
  if (PressureWatch* const watch = source_.watch()) {
    const int copy = ::fcntl(watch->fd(), F_DUPFD_CLOEXEC, 0);
    if (copy >= 0) signal_.emplace(loop_.io(), copy);
  }
}

PressureMonitor::~PressureMonitor() { stop(); }

void PressureMonitor::start() { on_timer(); }

void PressureMonitor::stop() {
  *alive_ = false;
  signal_.reset();
  loop_.disarm(*this);
}

void PressureMonitor::on_timer() {
  sample(false);
  // Once per interval, even if a source signals more often.
  wait_for_signal();
  loop_.arm(*this, Clock::now() + sample_interval);
}

void PressureMonitor::wait_for_signal() {
  if (!signal_ || waiting_ || source_.watch()->ended()) return;
  const auto kind = source_.watch()->events() == POLLPRI
                        ? asio::posix::stream_descriptor::wait_error
                        : asio::posix::stream_descriptor::wait_read;
  waiting_ = true;
  signal_->async_wait(kind, [this, alive = alive_](const boost::system::error_code& error) {
    if (!*alive) return;
    waiting_ = false;
    if (!error) sample(true);
  });
}

void PressureMonitor::sample(bool signalled) {
  PressureInputs inputs = source_.read();
  const BudgetUsage usage = process_.usage();
  inputs.budget_used_bytes = usage.used_bytes;
  inputs.budget_limit_bytes = usage.limit_bytes;
  // The wait may have consumed the event that read() asks for. An ended watch gives no information.
  const bool waited =
      signalled && source_.watch()->events() == POLLPRI && !source_.watch()->ended();
  inputs.signalled = inputs.signalled || waited;
  const auto change = fsm_.step(inputs, Clock::now().time_since_epoch().count());
  pressure_.publish(inputs, change, source_.cgroup().memory_version());
  if (!change) return;
  log::info("memory pressure is {} now, after {}: {}", pressure_level_name(change->to),
            pressure_level_name(change->from), describe(*change, inputs));
}

PressureSource open_pressure_source() {
  Cgroup group = Cgroup::find();
  PressureWatch::Opened opened = PressureWatch::open_from_environment(
      std::getenv("MEMORY_PRESSURE_WATCH"), std::getenv("MEMORY_PRESSURE_WRITE"));
  if (!opened.error.empty()) log::warning("{}", opened.error);
  const bool told = opened.watch != nullptr;
  const std::string psi = group.psi_file();
  if (!told && !psi.empty()) opened = PressureWatch::open(psi, own_trigger);
  log::info("memory pressure is watched by the budget, cgroup {}, {}, {}",
            cgroup_version_name(group.memory_version()), psi.empty() ? "no stall information" : psi,
            told           ? "the service manager's signals"
            : opened.watch ? "a trigger of its own"
                           : "no trigger");
  return PressureSource(std::move(group), std::move(opened.watch));
}

}  // namespace spillway::server
