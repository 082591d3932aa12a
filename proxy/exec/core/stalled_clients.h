// Clients that stop reading in the middle of a reply.
//
// A client that has taken nothing for client_stall gives its shard's connection back: the rest of the reply moves
// into memory if memory is plenty, else into the spill file. Without either it keeps the connection. Of those that
// have taken nothing for stalled_patience, at most half of the connections that their worker may have to a host are
// kept: beyond that the client that has stalled longest is closed. A client that reads slowly, but reads, is closed
// only if the rest is in memory that others wait for: a scan that is cut begins anew (bench/slow_clients).
// (stream_rest.cpp)
#pragma once

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "allocator/limits.h"
#include "proxy/base/transport.h"
#include "proxy/exec/core/services.h"
#include "proxy/shard/gateway.h"

namespace spillway::exec {

inline constexpr Duration client_stall = std::chrono::milliseconds(200);
inline constexpr Duration stalled_patience = std::chrono::seconds(10);
// A client that takes its reply slowly must keep up at least this rate. (A kernel takes bytes in bursts, seconds
// apart.)
inline constexpr std::size_t reader_bytes_per_second_min = 16 * limits::kib;

// Then slow clients may not keep memory.
bool others_wait_for_memory(const Services& shared) noexcept;

// Looks at a client's rate each stalled_patience.
class ReaderWindow {
 public:
  ReaderWindow(TimePoint now, std::size_t taken_bytes) noexcept : end_(now + stalled_patience), before_(taken_bytes) {}
  // `taken_bytes`: all that it has taken so far. True at most once per window.
  bool is_too_slow(TimePoint now, std::size_t taken_bytes) noexcept {
    if (now < end_) return false;
    end_ = now + stalled_patience;
    const std::size_t taken = taken_bytes - std::exchange(before_, taken_bytes);
    return taken < stalled_patience / std::chrono::seconds(1) * reader_bytes_per_second_min;
  }

 private:
  TimePoint end_;
  std::size_t before_;
};

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

    // The client has taken nothing since `since`, which does not change while it is in line.
    void enter(TimePoint since);
    void leave() noexcept;  // the client reads again

   private:
    friend class StalledClients;
    StalledClients& clients_;
    const shard::HostAddress& host_;
    Transport& client_;
    TimePoint since_{};
  };

  // Closes the client that has stalled longest at this host, if more than `most` have exceeded stalled_patience
  // there; true if so.
  bool close_longest(const shard::HostAddress& host, std::size_t most, TimePoint now);
  std::size_t count() const noexcept { return places_.size(); }

 private:
  std::vector<Place*> places_;  // the longest stalled first
};

}  // namespace spillway::exec
