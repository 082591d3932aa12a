// Where pressure is read from: the cgroup, PSI, and a service manager's memory pressure protocol
// (https://systemd.io/MEMORY_PRESSURE).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "allocator/cgroup.h"
#include "allocator/pressure.h"

namespace spillway {

// Bytes of a Base64 text (RFC 4648, padded or not, blanks ignored); nullopt: it is none.
std::optional<std::string> decode_base64(std::string_view text);

// A file descriptor that becomes ready when memory is short: a PSI file with a trigger (regular
// file), a FIFO, or a Unix stream socket, as MEMORY_PRESSURE_WATCH names it. Not thread-safe.
class PressureWatch {
 public:
  struct Opened {
    std::unique_ptr<PressureWatch> watch;  // null: there is none
    std::string error;                     // why not; empty: nothing was asked for
  };
  // `write`: what is written once it is open; may be empty. A trigger ends with a line end or a
  // NUL, for the kernel takes the last byte for one. Never blocks.
  static Opened open(const std::string& path, std::string_view write);
  // By MEMORY_PRESSURE_WATCH ("/dev/null": none) and MEMORY_PRESSURE_WRITE; null: not set.
  static Opened open_from_environment(const char* path, const char* write_base64);
  ~PressureWatch();
  PressureWatch(const PressureWatch&) = delete;
  PressureWatch& operator=(const PressureWatch&) = delete;

  // For poll(): ready means take_signal() has something to say.
  int fd() const noexcept { return fd_; }
  short events() const noexcept;
  // Was there a signal since the last call? Never blocks.
  bool take_signal();
  // The other side is gone: nothing will come any more; fd() must not be waited for.
  bool ended() const noexcept { return ended_; }

 private:
  enum class Kind : std::uint8_t { psi, stream };
  PressureWatch(int fd, Kind kind) : fd_(fd), kind_(kind) {}
  bool drain();

  int fd_;
  Kind kind_;
  bool ended_ = false;
};

// All outside inputs together. Owned and used by one thread.
class PressureSource {
 public:
  explicit PressureSource(Cgroup cgroup, std::unique_ptr<PressureWatch> watch = nullptr);

  const Cgroup& cgroup() const noexcept { return cgroup_; }
  PressureWatch* watch() noexcept { return watch_.get(); }
  // Everything but the budget, which the caller fills in.
  PressureInputs read();

 private:
  Cgroup cgroup_;
  std::unique_ptr<PressureWatch> watch_;
};

}  // namespace spillway
