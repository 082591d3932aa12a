#include "proxy/server/service_manager.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <system_error>

namespace spillway::server {

namespace {

constexpr int first_passed_descriptor = 3;
constexpr std::int64_t passed_descriptors_max = 64;

std::optional<std::int64_t> number(const char* text) noexcept {
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size()) return std::nullopt;
  return value;
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
  if (const char* path = std::getenv("NOTIFY_SOCKET")) manager.socket_ = path;
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

void ServiceManager::notify(std::string_view lines) const noexcept {
  sockaddr_un address{};
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  static_cast<void>(::sendto(socket.get(), lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                             reinterpret_cast<const sockaddr*>(&address), length));
}

void ServiceManager::starting(std::string_view status, std::chrono::seconds at_most) const noexcept {
  notify(fmt::format("EXTEND_TIMEOUT_USEC={}\nSTATUS={}", std::chrono::microseconds(at_most).count(), status));
}

void ServiceManager::ready(std::string_view status) const noexcept {
  notify(fmt::format("READY=1\nSTATUS={}", status));
}

void ServiceManager::reloading(std::string_view status) const noexcept {
  notify(fmt::format("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS={}", monotonic_us(), status));
}

void ServiceManager::replaced_by(::pid_t process) noexcept {
  notify(fmt::format("MAINPID={}", process));
  socket_.clear();
}

void ServiceManager::stopping(std::chrono::seconds at_most) const noexcept {
  notify(fmt::format("STOPPING=1\nEXTEND_TIMEOUT_USEC={}\nSTATUS=Shutting down",
                     std::chrono::microseconds(at_most).count()));
}

}  // namespace spillway::server
