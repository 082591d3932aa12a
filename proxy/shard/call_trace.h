// CallTrace: the attempts of one traced operation's calls to shards, for a span each. Its worker's thread adds;
// afterwards it may move to another thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "allocator/budget.h"
#include "proxy/shard/gateway.h"

namespace spillway::shard {

struct TracedCall {
  std::string shard;        // its name
  std::string command;      // the command's name
  HostAddress host;         // port 0: no connection was found
  std::uint8_t attempt = 1;
  std::int32_t error = 0;   // 0: answered with ok: 1
  // From the connection found (or from the beginning of the search that failed) to the first bytes of the answer.
  TimePoint began{}, ended{};
};

class CallTrace {
 public:
  static constexpr std::size_t calls_max = 256;  // of one operation
  static constexpr std::size_t name_bytes_max = 64;
  // Reserved for each call, texts included.
  static constexpr std::size_t call_bytes = 384;

  // `memory` pays; it is of the budget that pays for calls, too.
  explicit CallTrace(Reservation memory) noexcept : memory_(std::move(memory)) {}

  void add(TracedCall call) {
    if (calls_.size() < calls_max && memory_.try_grow(call_bytes)) {
      calls_.push_back(std::move(call));
    } else {
      ++unrecorded_;
    }
  }
  const std::deque<TracedCall>& calls() const noexcept { return calls_; }
  // Keeps the first ones.
  void cut_to(std::size_t count) {
    if (count < calls_.size()) calls_.resize(count);
  }
  // Calls for which there was no room.
  std::size_t unrecorded() const noexcept { return unrecorded_; }

 private:
  Reservation memory_;
  std::deque<TracedCall> calls_;
  std::size_t unrecorded_ = 0;
};

}  // namespace spillway::shard
