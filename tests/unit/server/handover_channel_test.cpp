#include "proxy/server/connections/handover_channel.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "proxy/exec/core/shared.h"
#include "proxy/server/connections/listener.h"
#include "proxy/server/connections/offered_sockets.h"
#include "proxy/server/life/handover.h"

namespace spillway::server {
namespace {

BsonDoc number(std::int64_t n) {
  BsonWriter out;
  out.append("n", n);
  return std::move(out).finish();
}

FileDescriptor listening_socket(std::uint16_t& port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  asio::ip::tcp::endpoint where(asio::ip::address_v4::loopback(), 0);
  REQUIRE(::bind(socket.get(), where.data(), static_cast<socklen_t>(where.size())) == 0);
  REQUIRE(::listen(socket.get(), 1) == 0);
  port = listening_endpoint(socket.get())->port();
  return socket;
}

// While it lives, this thread has none of root's freedoms, which it may have.
class OrdinaryUser {
 public:
  OrdinaryUser() {
    REQUIRE(::syscall(SYS_capget, &head_, before_.data()) == 0);
    auto none = before_;
    for (__user_cap_data_struct& half : none) half.effective = 0;
    REQUIRE(::syscall(SYS_capset, &head_, none.data()) == 0);
  }
  ~OrdinaryUser() { ::syscall(SYS_capset, &head_, before_.data()); }
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;

 private:
  __user_cap_header_struct head_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> before_{};
};

}  // namespace

TEST_CASE("a channel passes more messages than the kernel holds, in their order") {
  Loop loop;
  auto [here, there] = HandoverChannel::make_pair();
  HandoverChannel from(loop, std::move(here)), to(loop, std::move(there));
  constexpr std::int64_t count = 5'000;
  for (std::int64_t i = 0; i < count; ++i) from.send(HandoverChannel::message("client", number(i)));
  std::int64_t heard = 0;
  to.start(
      [&](HandoverChannel::Message message) {
        CHECK(message.kind == "client");
        CHECK(message.body.view()["n"].as_int64() == heard);
        if (++heard == count) loop.stop();
      },
      [&](const std::string&) { loop.stop(); });
  loop.run();
  CHECK(heard == count);
}

TEST_CASE("a channel ends when the other end does, once all is heard") {
  Loop loop;
  auto [here, there] = HandoverChannel::make_pair();
  HandoverChannel to(loop, std::move(there));
  {
    HandoverChannel from(loop, std::move(here));
    to.send(HandoverChannel::message("unread", {}));
    from.send(HandoverChannel::message("last", {}));
  }
  std::vector<std::string> heard;
  to.start([&](HandoverChannel::Message message) { heard.push_back(message.kind); },
           [&](const std::string& why) {
             heard.push_back(why);
             loop.stop();
           });
  loop.run();
  CHECK(heard == std::vector<std::string>{"last", "the other process has gone"});
  to.send(HandoverChannel::message("nobody", {}));
}

TEST_CASE("a channel says when the kernel has all") {
  Loop loop;
  auto [here, there] = HandoverChannel::make_pair();
  HandoverChannel from(loop, std::move(here)), to(loop, std::move(there));
  std::int64_t sent = 0, heard = 0;
  for (; from.all_sent(); ++sent) from.send(HandoverChannel::message("client", number(sent)));
  to.start([&](HandoverChannel::Message) { if (++heard == sent) loop.stop(); }, [&](const std::string&) {});
  loop.run();
  CHECK(from.all_sent());
}

TEST_CASE("a channel goes on when a descriptor could not be taken") {
  Loop loop;
  auto [here, there] = HandoverChannel::make_pair();
  HandoverChannel from(loop, std::move(here)), to(loop, std::move(there));
  std::uint16_t port = 0;
  HandoverChannel::Message client = HandoverChannel::message("client", {});
  client.descriptors.push_back(listening_socket(port));
  from.send(std::move(client));
  from.send(HandoverChannel::message("last", {}));
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto lost = to.wait_for_message(std::chrono::seconds(5));
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(lost.kind == "client");
  CHECK(lost.descriptors.empty());
  CHECK(to.wait_for_message(std::chrono::seconds(5)).kind == "last");
}

TEST_CASE("a channel waits while too many descriptors are on their way") {
  Loop loop;
  auto [here, there] = HandoverChannel::make_pair();
  HandoverChannel from(loop, std::move(here)), to(loop, std::move(there));
  constexpr int count = 64;
  std::vector<HandoverChannel::Message> clients;
  for (int i = 0; i < count; ++i) {
    std::uint16_t port = 0;
    clients.push_back(HandoverChannel::message("client", {}));
    clients.back().descriptors.push_back(listening_socket(port));
  }
  {
    const OrdinaryUser here_only;  // the limit is not for others
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit few{8, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (HandoverChannel::Message& client : clients) from.send(std::move(client));
    const std::size_t attempts = loop.io().run_for(std::chrono::milliseconds(100));
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_FALSE(from.all_sent());
    CHECK(attempts < 50);
  }
  int heard = 0;
  to.start(
      [&](HandoverChannel::Message message) {
        CHECK(message.descriptors.size() == 1);
        if (++heard == count) loop.stop();
      },
      [&](const std::string&) { loop.stop(); });
  loop.io().restart();
  loop.run();
  CHECK(heard == count);
}

TEST_CASE("listening sockets pass to where they fit") {
  Loop loop;
  auto [here, there] = HandoverChannel::make_pair();
  HandoverChannel from(loop, std::move(here)), to(loop, std::move(there));
  std::uint16_t free = 0, fixed = 0, managed = 0;
  std::vector<OfferedSocket> sockets;
  sockets.push_back({SocketUse::clients, 0, listening_socket(free)});
  sockets.push_back({SocketUse::admin, 0, listening_socket(fixed)});
  sockets.back().asked_port = fixed;
  sockets.push_back({SocketUse::service_manager, 0, listening_socket(managed)});
  from.send(OfferedSockets::offer(std::move(sockets)));
  OfferedSockets offered = OfferedSockets::take(to.wait_for_message(std::chrono::seconds(5)));
  const auto loopback = [](std::uint16_t port) {
    return asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), port);
  };
  CHECK_FALSE(offered.take(SocketUse::load_balancers, loopback(0)));
  CHECK_FALSE(offered.take(SocketUse::clients, {asio::ip::address_v4::any(), 0}));
  CHECK_FALSE(offered.take(SocketUse::clients, loopback(managed)));
  const FileDescriptor first = offered.take(SocketUse::clients, loopback(0));
  CHECK(listening_endpoint(first.get())->port() == free);
  CHECK_FALSE(offered.take(SocketUse::clients, loopback(0)));
  CHECK(offered.take(SocketUse::clients, loopback(fixed)));  // a port may get another use
  CHECK(offered.take_service_managers().size() == 1);
}

TEST_CASE("a listener takes the sockets that it is offered") {
  Loop loop;
  exec::Shared shared(0);
  ListenerOptions options;
  options.addresses = {"127.0.0.1"};
  options.load_balancer_port = 0;
  options.connections_max = 16;
  Listener before(loop, shared, options);
  OfferedSockets offered(before.offer());
  options.offered = &offered;
  const Listener after(loop, shared, options);
  CHECK(after.port() == before.port());
  CHECK(after.load_balancer_port() == before.load_balancer_port());
  OfferedSockets again(after.offer());
  options.offered = &again;
  options.addresses = {"0.0.0.0"};
  options.port = before.port();
  options.load_balancer_port.reset();
  const Listener wider(loop, shared, options);
  CHECK(wider.port() == before.port());
  options.offered = nullptr;
  CHECK_THROWS_WITH(Listener(loop, shared, options), Catch::Contains("cannot listen on 0.0.0.0") &&
                                                           Catch::Contains("in use (spillway doctor shows"));
  options.addresses = {"127.0.0.1"};
  options.offered = &offered;
  CHECK_THROWS_WITH(Listener(loop, shared, options), Catch::Contains("cannot listen on 127.0.0.1"));
}

TEST_CASE("two processes keep to one limit, and each can go on") {
  constexpr std::uint64_t mib = limits::mib;
  const auto beside = [](std::uint64_t held, std::uint64_t used, std::uint64_t limit) {
    return limit_beside(100 * mib, held * mib, {.used_bytes = used * mib, .limit_bytes = limit * mib}) / mib;
  };
  CHECK(beside(30, 0, 100) == 70);
  CHECK(beside(100, 20, 100) == 28);
  CHECK(beside(300, 0, 100) == 8);
  CHECK(beside(0, 99, 100) == 100);
  // It takes all that it may, and is told again.
  std::uint64_t limit = 100, used = 20;
  for (int told = 0; told < 20; ++told) used = limit = beside(100, used, limit);
  CHECK(limit == 28);
  CHECK(beside(60, used, limit) == 40);  // the other has given something back
}

TEST_CASE("a program is another one when its file is") {
  const Program itself("server_test");
  CHECK(itself.path().ends_with("server_test"));
  CHECK_FALSE(itself.replaced());
}

}  // namespace spillway::server
