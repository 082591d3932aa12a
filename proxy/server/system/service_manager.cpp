#include "proxy/server/system/service_manager.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <system_error>

#include "proxy/base/number.h"

namespace spillway::server {

namespace {

constexpr int first_passed_descriptor = 3;
constexpr std::int64_t passed_descriptors_max = 64;
constexpr timeval send_max{1, 0};

std::optional<std::int64_t> number(const char* text) noexcept {
  if (text == nullptr) return std::nullopt;
  return parse_number<std::int64_t>(text);
}

// Both variables name the process that they are for; a missing one is for any.
bool is_for_us(const char* pid) noexcept { return pid == nullptr || number(pid) == std::int64_t{::getpid()}; }

std::int64_t monotonic_us() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
}

}  // namespace

ServiceManager ServiceManager::from_environment() {
  ServiceManager manager;
  if (const char* name = std::getenv("NOTIFY_SOCKET")) manager.connect_to(name);
  const auto interval = number(std::getenv("WATCHDOG_USEC"));
  if (interval && *interval > 0 && is_for_us(std::getenv("WATCHDOG_PID"))) {
    manager.watchdog_ = std::chrono::microseconds(*interval);
  }
  const char* const listen_pid = std::getenv("LISTEN_PID");
  const auto count = number(std::getenv("LISTEN_FDS"));
  if (listen_pid == nullptr || !is_for_us(listen_pid) || !count) return manager;
  for (int i = 0; i < std::min(*count, passed_descriptors_max); ++i) {
    const int descriptor = first_passed_descriptor + i;
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    manager.sockets_.emplace_back(descriptor);
  }
  return manager;
}

// `name`: a path, or an abstract name after '@'.
void ServiceManager::connect_to(std::string_view name) noexcept {
  if (name.empty() || name.size() >= sizeof address_.sun_path) return;
  address_.sun_family = AF_UNIX;
  std::memcpy(address_.sun_path, name.data(), name.size());
  if (address_.sun_path[0] == '@') address_.sun_path[0] = '\0';
  address_bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &send_max, sizeof send_max);
}

// Not connected: the service manager may make its socket anew.
void ServiceManager::send(std::string_view lines, int flags) const noexcept {
  if (!socket_) return;
  ssize_t sent = 0;
  do {
    sent = ::sendto(socket_.get(), lines.data(), lines.size(), MSG_NOSIGNAL | flags,
                    reinterpret_cast<const sockaddr*>(&address_), address_bytes_);
  } while (sent < 0 && errno == EINTR);
}

void ServiceManager::notify(std::string_view lines) const noexcept { send(lines, MSG_DONTWAIT); }

void ServiceManager::starting(std::string_view status, std::chrono::seconds at_most) const noexcept {
  notify(fmt::format("EXTEND_TIMEOUT_USEC={}\nSTATUS={}", std::chrono::microseconds(at_most).count(), status));
}

void ServiceManager::ready(std::string_view status) const noexcept {
  send(fmt::format("READY=1\nSTATUS={}", status));
}

void ServiceManager::reloading(std::string_view status) const noexcept {
  notify(fmt::format("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS={}", monotonic_us(), status));
}

void ServiceManager::replaced_by(::pid_t process) noexcept {
  send(fmt::format("MAINPID={}", process));
  socket_.reset();
}

void ServiceManager::stopping(std::chrono::seconds at_most) const noexcept {
  send(fmt::format("STOPPING=1\nEXTEND_TIMEOUT_USEC={}\nSTATUS=Shutting down",
                   std::chrono::microseconds(at_most).count()));
}

}  // namespace spillway::server
