// Settings that may change while the proxy serves: by setParameter, a reload or the profile command. A Config holds
// the configured values, exec::Shared the values in use. Thread-safe member by member.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/policy.h"

namespace spillway {

// An atomic that is copied as a plain value.
template <class T>
class Setting {
 public:
  using Value = T;
  Setting(T value) noexcept : value_(value) {}
  Setting(const Setting& other) noexcept : value_(other.load()) {}
  Setting& operator=(const Setting& other) noexcept { return *this = other.load(); }
  Setting& operator=(T value) noexcept {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  T load(std::memory_order order = std::memory_order_relaxed) const noexcept { return value_.load(order); }
  operator T() const noexcept { return load(); }

 private:
  std::atomic<T> value_;
};

// In the order of setParameter.spliceReplies.
enum class SpliceReplies : std::uint8_t { automatic, always, never };

struct Parameters {
  Setting<std::int64_t> cursor_timeout_ms{600'000};
  Setting<std::int64_t> cursor_monitor_frequency_secs{4};
  Setting<bool> timeout_of_session_cursors{true};
  Setting<std::int64_t> log_level{0};
  Setting<std::int64_t> slow_ms{100};
  Setting<std::int64_t> evict_idle_ms{30'000};
  Setting<std::int64_t> orphan_grace_ms{30'000};  // below 0: orphans live as long as others
  Setting<std::int64_t> user_refresh_secs{30};
  Setting<SpliceReplies> splice_replies{SpliceReplies::automatic};
  Setting<AllocatorChoice> allocator{AllocatorChoice::automatic};
  Setting<std::int64_t> idle_client_ms{0};       // 0: connections may be idle for ever
  Setting<std::int64_t> slow_sender_ms{30'000};  // a pause in the middle of a message
  // How long a shutdown is announced to clients before it begins.
  Setting<std::int64_t> shutdown_timeout_ms{15'000};
  bool test_commands = false;  // enableTestCommands; fixed at start
  bool localhost_exception = true;  // enableLocalhostAuthBypass; fixed at start

  // No key sets these; simulations do.
  Setting<std::int64_t> spill_idle_ms{10'000};
  Setting<std::int64_t> handshake_ms{30'000};  // until a first message; 0: any time
  Setting<bool> read_ahead{true};

  bool operator==(const Parameters&) const = default;
};

}  // namespace spillway
