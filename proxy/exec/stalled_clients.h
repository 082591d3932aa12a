// Clients that stop reading in the middle of a reply.
//
// One that has taken nothing for client_stall gives its shard's connection back: what is left of the reply moves into
// memory if memory is plenty, else into the spill file. Else it keeps the connection, as one of at most half of those
// that its worker may have to that host; beyond that the client that has stalled longest is closed. (stream_rest.cpp)
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "proxy/base/transport.h"
#include "proxy/shard/gateway.h"

namespace spillway::exec {

inline constexpr Duration client_stall = std::chrono::milliseconds(200);

// A worker's clients that have stalled and keep a shard's connection. Its own thread only.
class StalledClients {
 public:
  // A client's place; leaves when it is destroyed.
  class Place {
   public:
    Place(StalledClients& clients, const shard::HostAddress& host, Transport& client)
        : clients_(clients), host_(host), client_(client) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() { leave(); }

    // The client has stalled. Closes the one that has stalled longest if there are more than `most` at this host; true
    // if so. Nothing happens if it is in line already.
    bool enter(std::size_t most);
    void leave() noexcept;  // it reads again

   private:
    StalledClients& clients_;
    const shard::HostAddress& host_;
    Transport& client_;
  };

  std::size_t count() const noexcept { return places_.size(); }

 private:
  std::vector<Place*> places_;  // who has stalled longest first
};

}  // namespace spillway::exec
