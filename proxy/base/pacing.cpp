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

void set_congestion_control(int socket, std::string_view name) noexcept {
  ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
}

// What new sockets of this process have.
const std::string& choice_of_the_machine() {
  static const std::string name = [] {
    const FileDescriptor fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return congestion_control_of(fresh.get());
  }();
  return name;
}

}  // namespace

bool is_pacing(std::string_view congestion_control) noexcept { return congestion_control.substr(0, 3) == "bbr"; }

void set_unpaced(int socket) noexcept {
  if (is_pacing(choice_of_the_machine()) && is_pacing(congestion_control_of(socket))) {
    set_congestion_control(socket, unpaced);
  }
}

void set_paced_again(int socket) noexcept {
  if (is_pacing(choice_of_the_machine()) && congestion_control_of(socket) == unpaced) {
    set_congestion_control(socket, choice_of_the_machine());
  }
}

}  // namespace spillway
