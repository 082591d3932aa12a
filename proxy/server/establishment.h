// Establishment: how fast clients may connect, as MongoDB 8.2 limits it (the parameters
// ingressConnectionEstablishment…): who comes too fast waits in a queue, and where that is full, is
// closed. What waits is a descriptor alone: nothing is read of it, and it counts as an open connection.
//
// Lives on the main thread, beside the listener. Time is a parameter.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "proxy/base/clock.h"
#include "proxy/base/file_descriptor.h"
#include "proxy/exec/context.h"
#include "proxy/exec/rate_limiter.h"
#include "proxy/server/session.h"

namespace spillway::server {

class Establishment {
 public:
  struct Comer {
    FileDescriptor socket;
    Entrance entrance = Entrance::clients;
    TimePoint since{};
  };
  enum class Verdict : std::uint8_t { enters, waits, is_closed };

  explicit Establishment(exec::Shared& shared) : shared_(shared), limiter_(*shared.connection_rate) {}

  // Moves from `comer` if it waits. `exempt`: its address is in …RateLimiterBypass.
  Verdict offer(Comer& comer, bool exempt, TimePoint now);
  // Whose turn it is, if there is a token for him; those who have left meanwhile are dropped.
  std::optional<Comer> next(TimePoint now);
  // When to ask again; nullopt: nobody waits.
  std::optional<Duration> ask_again_in(TimePoint now) const;
  std::size_t waiting() const noexcept { return queue_.size(); }
  void close_all();

 private:
  void drop_absent();
  Comer take_first();

  exec::Shared& shared_;
  exec::RateLimiter& limiter_;
  std::deque<Comer> queue_;
  TimePoint looked_at_{};
};

}  // namespace spillway::server
