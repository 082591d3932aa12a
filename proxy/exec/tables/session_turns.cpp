#include "proxy/exec/tables/session_turns.h"

#include <algorithm>
#include <utility>

#include "proxy/shard/interrupt.h"
#include "proxy/shard/waiter.h"

namespace spillway::exec {

struct SessionTurns::Place {
  Loop& loop;
  shard::WaiterLine line{};  // on the loop's thread; empty once it waits no more
  bool given = false;        // guarded by the mutex
};

Task<Result<SessionTurns::Turn>> SessionTurns::take(Loop& loop, std::string_view lsid, TimePoint deadline,
                                                    shard::Interrupt* interrupt) {
  std::shared_ptr<Place> place;
  {
    const MutexLock lock(mutex_);
    const auto line = lines_.find(lsid);
    if (line != lines_.end()) {
      place = std::make_shared<Place>(loop);
      line->second.push_back(place);
    } else {
      lines_.try_emplace(std::string(lsid));
    }
  }
  if (!place) co_return Turn(*this, lsid);
  {
    shard::Waiter waiter(loop, deadline);
    place->line.push_back(waiter);
    const shard::Interruptible interruptible(interrupt, waiter);
    co_await waiter;
  }
  bool given = false;
  {
    const MutexLock lock(mutex_);
    given = place->given;
    const auto line = lines_.find(lsid);
    if (!given) line->second.erase(std::find(line->second.begin(), line->second.end(), place));
  }
  Turn turn;
  if (given) turn = Turn(*this, lsid);
  if (const Error* why = shard::requested_of(interrupt)) co_return *why;
  if (!given) co_return time_limit_exceeded();
  co_return std::move(turn);
}

std::size_t SessionTurns::size() const {
  const MutexLock lock(mutex_);
  return lines_.size();
}

void SessionTurns::end(const std::string& lsid) noexcept {
  std::shared_ptr<Place> next;
  {
    const MutexLock lock(mutex_);
    const auto line = lines_.find(lsid);
    if (line->second.empty()) {
      lines_.erase(line);
      return;
    }
    next = std::move(line->second.front());
    line->second.pop_front();
    next->given = true;
  }
  Loop& loop = next->loop;
  loop.post([next = std::move(next)] { shard::wake_all(next->line); });
}

}  // namespace spillway::exec
