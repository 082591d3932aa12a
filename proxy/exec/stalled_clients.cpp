#include "proxy/exec/stalled_clients.h"

#include <algorithm>

namespace spillway::exec {

bool StalledClients::Place::enter(std::size_t most) {
  std::vector<Place*>& places = clients_.places_;
  if (std::find(places.begin(), places.end(), this) != places.end()) return false;
  places.push_back(this);
  const auto same_host = [this](const Place* each) { return each->host_ == host_; };
  const auto there = static_cast<std::size_t>(std::count_if(places.begin(), places.end(), same_host));
  if (there <= std::max<std::size_t>(1, most)) return false;
  Place* const longest = *std::find_if(places.begin(), places.end(), same_host);
  longest->leave();
  longest->client_.reset();
  return true;
}

void StalledClients::Place::leave() noexcept { std::erase(clients_.places_, this); }

}  // namespace spillway::exec
