#include "allocator/pressure_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace spillway {

namespace {

std::string watch_error(const std::string& path, const char* what) {
  return path + ": cannot be " + what + ": " + std::strerror(errno);
}

int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int reason = errno;
    ::close(fd);
    errno = reason;
    return -1;
  }
  return fd;
}

// An ordinary file is always ready; epoll refuses it.
bool can_wait_for(int fd) {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return false;
  epoll_event event{};
  event.events = EPOLLPRI;
  const bool can = ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
  ::close(epoll);
  return can;
}

int base64_digit(char c) noexcept {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  int digits = 0, padding = 0;
  for (const char c : text) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    const int digit = base64_digit(c);
    if (digit < 0 || padding > 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (++digits % 4 == 0) {
      for (const int shift : {16, 8, 0}) out += static_cast<char>(bits >> shift & 0xff);
      bits = 0;
    }
  }
  const int rest = digits % 4;
  if (rest == 1 || (padding != 0 && (rest == 0 || rest + padding != 4))) return std::nullopt;
  if (rest == 2) out += static_cast<char>(bits >> 4 & 0xff);
  if (rest == 3) {
    out += static_cast<char>(bits >> 10 & 0xff);
    out += static_cast<char>(bits >> 2 & 0xff);
  }
  return out;
}

PressureWatch::Opened PressureWatch::open(const std::string& path, std::string_view write) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {nullptr, watch_error(path, "opened")};
  const bool is_socket = S_ISSOCK(status.st_mode), is_fifo = S_ISFIFO(status.st_mode);
  if (!is_socket && !is_fifo && !S_ISREG(status.st_mode)) {
    return {nullptr, path + ": is no file, FIFO or socket"};
  }
  // A FIFO is opened for both, so that it has no end when its last writer goes.
  const int mode = is_fifo || !write.empty() ? O_RDWR : O_RDONLY;
  const int fd = is_socket ? connect_to(path) : ::open(path.c_str(), mode | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {nullptr, watch_error(path, is_socket ? "connected to" : "opened")};
  const bool is_psi = !is_socket && !is_fifo;
  std::unique_ptr<PressureWatch> watch(new PressureWatch(fd, is_psi ? Kind::psi : Kind::stream));
  if (!write.empty()) {
    const ssize_t written = is_socket ? ::send(fd, write.data(), write.size(), MSG_NOSIGNAL)
                                      : ::write(fd, write.data(), write.size());
    if (written != static_cast<ssize_t>(write.size())) return {nullptr, watch_error(path, "written to")};
    if (is_fifo) watch->drain();  // a FIFO returns our own bytes
  }
  if (is_psi && (write.empty() || !can_wait_for(fd))) {
    return {nullptr, path + ": tells nothing of memory pressure"};
  }
  return {std::move(watch), {}};
}

PressureWatch::Opened PressureWatch::open_from_environment(const char* path,
                                                           const char* write_base64) {
  if (path == nullptr || *path == '\0' || std::strcmp(path, "/dev/null") == 0) return {};
  if (*path != '/')
    return {nullptr, std::string("MEMORY_PRESSURE_WATCH: ") + path + ": is no absolute path"};
  const auto write = decode_base64(write_base64 == nullptr ? "" : write_base64);
  if (!write) return {nullptr, "MEMORY_PRESSURE_WRITE: is no Base64"};
  Opened opened = open(path, *write);
  if (!opened.error.empty()) opened.error = "MEMORY_PRESSURE_WATCH: " + opened.error;
  return opened;
}

PressureWatch::~PressureWatch() { ::close(fd_); }

short PressureWatch::events() const noexcept { return kind_ == Kind::psi ? POLLPRI : POLLIN; }

// Reads and forgets what has come. True: there was something.
bool PressureWatch::drain() {
  bool any = false;
  std::array<char, 512> nothing;
  // Bounds the loop: a peer may never stop sending.
  for (int turn = 0; turn < 64; ++turn) {
    const ssize_t got = ::read(fd_, nothing.data(), nothing.size());
    if (got > 0) {
      any = true;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    ended_ = ended_ || got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    break;
  }
  return any;
}

bool PressureWatch::take_signal() {
  if (ended_) return false;
  pollfd ready{fd_, events(), 0};
  if (::poll(&ready, 1, 0) <= 0) return false;
  if (kind_ == Kind::stream) return drain();
  // POLLERR: the group was removed. A trigger that fired is reset by having been polled.
  ended_ = (ready.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
  return !ended_ && (ready.revents & POLLPRI) != 0;
}

PressureSource::PressureSource(Cgroup cgroup, std::unique_ptr<PressureWatch> watch)
    : cgroup_(std::move(cgroup)), watch_(std::move(watch)) {}

PressureInputs PressureSource::read() {
  PressureInputs inputs;
  inputs.cgroup = cgroup_.read_memory();
  inputs.psi = cgroup_.read_psi();
  inputs.signalled = watch_ != nullptr && watch_->take_signal();
  return inputs;
}

}  // namespace spillway
