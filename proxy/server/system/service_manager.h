// ServiceManager: messages to systemd (sd_notify(3)) and sockets from it (sd_listen_fds(3)), without its library.
//
// Does nothing where the process was not started by a service manager. Belongs to the main thread.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "proxy/base/file_descriptor.h"

namespace spillway::server {

class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID, LISTEN_PID and LISTEN_FDS. Call it once: the sockets are taken.
  static ServiceManager from_environment();

  // Lines of sd_notify: "READY=1
  // STATUS=…". A message that cannot be sent at once is dropped; ready(), replaced_by() and stopping() wait a second
  // for that, as the loss of READY= or MAINPID= would end the service.
  void notify(std::string_view lines) const noexcept;
  // The start takes longer, for `at_most` from now on unless this is said again.
  void starting(std::string_view status, std::chrono::seconds at_most) const noexcept;
  void ready(std::string_view status) const noexcept;
  // Until ready().
  void reloading(std::string_view status) const noexcept;
  // This process is the service's main one from now on, and this object has nothing to say any more.
  void replaced_by(::pid_t process) noexcept;
  // `at_most`: how long the shutdown may take.
  void stopping(std::chrono::seconds at_most) const noexcept;

  // The interval of WATCHDOG=1; nullopt: no watchdog.
  std::optional<std::chrono::microseconds> watchdog() const noexcept { return watchdog_; }
  // Listening sockets of a socket unit, in its order.
  std::vector<FileDescriptor> take_sockets() noexcept { return std::move(sockets_); }

 private:
  void connect_to(std::string_view name) noexcept;
  void send(std::string_view lines, int flags = 0) const noexcept;

  // Open from the beginning: a message must also leave when no file can be opened. Empty: no service manager.
  FileDescriptor socket_;
  sockaddr_un address_{};
  socklen_t address_bytes_ = 0;
  std::optional<std::chrono::microseconds> watchdog_;
  std::vector<FileDescriptor> sockets_;
};

}  // namespace spillway::server
