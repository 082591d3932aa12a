#include "proxy/base/pacing.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>

#include "proxy/base/file_descriptor.h"

namespace spillway {

namespace {

constexpr std::string_view unpaced = "reno";

std::string congestion_control_of(int socket) {
  char name[16]{};  // TCP_CA_NAME_MAX
  socklen_t length = sizeof name - 1;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return {};
  return name;
}

bool set_congestion_control(int socket, std::string_view name) noexcept {
  return ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

// The default of new sockets of this process, if it paces and can be chosen again after a change; else empty.
const std::string& replaceable_choice() {
  static const std::string name = [] {
    const FileDescriptor fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    std::string found = congestion_control_of(fresh.get());
    const bool replaceable = is_pacing(found) && set_congestion_control(fresh.get(), unpaced) &&
                             set_congestion_control(fresh.get(), found);
    if (!replaceable) found.clear();
    return found;
  }();
  return name;
}

}  // namespace

bool is_pacing(std::string_view congestion_control) noexcept { return congestion_control.substr(0, 3) == "bbr"; }

void set_unpaced(int socket) noexcept {
  if (replaceable_choice().empty() || !is_pacing(congestion_control_of(socket))) return;
  set_congestion_control(socket, unpaced);
}

void set_paced_again(int socket) noexcept {
  if (replaceable_choice().empty() || congestion_control_of(socket) != unpaced) return;
  set_congestion_control(socket, replaceable_choice());
}

}  // namespace spillway
