#include "proxy/base/pacing.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>

#include "proxy/base/file_descriptor.h"
#include "tests/unit/base/tcp_pair.h"

namespace spillway {

namespace {

std::string congestion_control_of(int socket) {
  char name[16]{};
  socklen_t length = sizeof name - 1;
  REQUIRE(::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0);
  return name;
}

int new_socket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

// What the machine gives new sockets, and what they are to have within it.
struct Choices {
  std::string machine = [] {
    const FileDescriptor fresh(new_socket());
    return congestion_control_of(fresh.get());
  }();
  std::string within = is_pacing(machine) ? "reno" : machine;
};

}  // namespace

TEST_CASE("BBR paces by itself, in all its versions", "[tcp]") {
  CHECK(is_pacing("bbr"));
  CHECK(is_pacing("bbr3"));
  CHECK_FALSE(is_pacing("cubic"));
  CHECK_FALSE(is_pacing("reno"));
  CHECK_FALSE(is_pacing(""));
}

TEST_CASE("connections within the machine are not paced, and others have the machine's choice", "[tcp]") {
  const Choices choices;
  const FileDescriptor listening(new_socket());
  set_unpaced(listening.get());
  CHECK(congestion_control_of(listening.get()) == choices.within);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listening.get(), plain, length) == 0);
  REQUIRE(::listen(listening.get(), 8) == 0);
  REQUIRE(::getsockname(listening.get(), plain, &length) == 0);
  const FileDescriptor client(new_socket());
  REQUIRE(::connect(client.get(), plain, length) == 0);
  FileDescriptor accepted(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(accepted);
  const int fd = accepted.get();
  CHECK(congestion_control_of(fd) == choices.within);
  SECTION("one from this machine stays so") {
    TcpPair pair;  // for its loop
    const auto transport = adopt_tcp_transport(pair.loop, std::move(accepted));
    CHECK(congestion_control_of(fd) == choices.within);
  }
  SECTION("one from elsewhere does not") {
    set_paced_again(fd);
    CHECK(congestion_control_of(fd) == choices.machine);
  }
}

TEST_CASE("a congestion control chosen for a socket stays", "[tcp]") {
  const FileDescriptor chosen(new_socket());
  constexpr std::string_view reno = "reno";
  REQUIRE(::setsockopt(chosen.get(), IPPROTO_TCP, TCP_CONGESTION, reno.data(), reno.size()) == 0);
  set_unpaced(chosen.get());
  CHECK(congestion_control_of(chosen.get()) == "reno");
}

}  // namespace spillway
