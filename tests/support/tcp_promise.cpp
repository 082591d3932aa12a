#include "tests/support/tcp_promise.h"

// The C library's netinet/tcp.h has an older tcp_info, of the same name: it must not come in here.
#include <linux/in.h>
#include <linux/tcp.h>
#include <sys/socket.h>

#include <cstddef>

namespace spillway {

std::optional<std::uint32_t> promised_bytes(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  if (length < offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd) return std::nullopt;
  return info.tcpi_snd_wnd;
}

}  // namespace spillway
