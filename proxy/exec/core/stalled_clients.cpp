#include "proxy/exec/core/stalled_clients.h"

#include <algorithm>

#include "allocator/pressure.h"
#include "proxy/exec/core/process_memory.h"

namespace spillway::exec {

bool others_wait_for_memory(const Services& shared) noexcept {
  return shared.memory.work_queue.somebody_waits() || shared.memory.request_queue.somebody_waits() ||
         shared.pressure.at_least(PressureLevel::critical);
}

void StalledClients::Place::enter(TimePoint since) {
  std::vector<Place*>& places = clients_.places_;
  if (std::find(places.begin(), places.end(), this) != places.end()) return;
  since_ = since;
  places.push_back(this);
}

void StalledClients::Place::leave() noexcept { std::erase(clients_.places_, this); }

bool StalledClients::close_longest(const shard::HostAddress& host, std::size_t most,
                                   TimePoint now) {
  const auto out_of_patience = [&](const Place* each) {
    return each->host_ == host && now - each->since_ >= stalled_patience;
  };
  const auto there =
      static_cast<std::size_t>(std::count_if(places_.begin(), places_.end(), out_of_patience));
  if (there <= std::max<std::size_t>(1, most)) return false;
  Place* const longest = *std::find_if(places_.begin(), places_.end(), out_of_patience);
  longest->leave();
  longest->client_.reset();
  return true;
}

}  // namespace spillway::exec
