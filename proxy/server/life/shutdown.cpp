#include "proxy/server/life/shutdown.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proxy/base/log.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/counters/connection_counts.h"

namespace spillway::server {

namespace {
// For the last messages to shards, and for connections to them that are being opened.
constexpr auto shard_time_max = std::chrono::seconds(20);

std::int64_t whole_ms(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}
}  // namespace

Shutdown::Shutdown(Loop& loop, const exec::Services& shared, std::vector<Worker*> workers, Options options)
    : loop_(loop), shared_(shared), workers_(std::move(workers)), options_(std::move(options)) {}

void Shutdown::begin(Duration announce) {
  const TimePoint until = Clock::now() + announce;
  if (begun_ && until >= announced_until_) return;
  announced_until_ = until;
  shared_.life.quiesce_end_ns = until.time_since_epoch().count();
  if (std::exchange(begun_, true)) return;
  log::info("shutdown: clients are told for {} ms at most; requests under way may take {} ms more", whole_ms(announce),
            whole_ms(options_.drain));
  if (options_.began) {
    options_.began(std::chrono::ceil<std::chrono::seconds>(announce + options_.drain + shard_time_max));
  }
  loop_.spawn(run());
}

void Shutdown::hurry() {
  if (hurried_) return;
  hurried_ = true;
  log::info("shutdown: the remaining clients are closed now");
  for (Worker* worker : workers_) worker->hurry();
}

Task<void> Shutdown::announce() {
  shared_.life.quiescing = true;
  shared_.life.topology_counter = 1;
  for (Worker* worker : workers_) worker->wake_hellos();
  do {
    co_await loop_.sleep_for(look_interval);
  } while (Clock::now() < announced_until_ && shared_.connections.busy > 0 && !hurried_);
}

// The first worker ends last: it ends resources that the others' connections may still use.
Task<void> Shutdown::stop_workers() {
  const TimePoint cut = Clock::now() + options_.drain;
  for (Worker* worker : workers_) worker->begin_drain();
  const std::vector<Worker*> others(workers_.begin() + 1, workers_.end());
  for (Worker* worker : others) worker->begin_stop(cut, {});
  workers_.front()->begin_stop(cut, others);
  while (!workers_.front()->done()) co_await loop_.sleep_for(look_interval);
}

Task<void> Shutdown::run() {
  co_await announce();
  log::info("shutdown: no new connections; {} that have sent requests are open", shared_.connections.busy.load());
  if (options_.stop_listening) options_.stop_listening();
  shared_.life.stopping = true;
  co_await stop_workers();
  done_ = true;
  if (options_.ended) options_.ended();
}

}  // namespace spillway::server
