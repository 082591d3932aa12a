#include "proxy/server/system/service_manager.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "proxy/server/system/watchdog.h"

namespace spillway::server {
namespace {

// An abstract socket that keeps what it is sent.
class Manager {
 public:
  Manager() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    name_ = "@spillway-test-" + std::to_string(::getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name_.data(), name_.size());
    address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
    ::setenv("NOTIFY_SOCKET", name_.c_str(), 1);
  }
  ~Manager() {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS"}) {
      ::unsetenv(name);
    }
  }
  int socket() const noexcept { return socket_.get(); }
  // The next message; empty: none.
  std::string next() const {
    char text[1024];
    const ssize_t got = ::recv(socket_.get(), text, sizeof text, 0);
    return got > 0 ? std::string(text, static_cast<std::size_t>(got)) : std::string();
  }

 private:
  FileDescriptor socket_;
  std::string name_;
};

}  // namespace

TEST_CASE("the service manager is told what sd_notify would tell") {
  const Manager manager;
  const ServiceManager told = ServiceManager::from_environment();
  CHECK_FALSE(told.watchdog().has_value());
  told.ready("Listening");
  CHECK(manager.next() == "READY=1\nSTATUS=Listening");
  told.reloading("Reloading the configuration");
  const std::string reloading = manager.next();
  CHECK(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="));
  CHECK(std::stoll(reloading.substr(std::strlen("RELOADING=1\nMONOTONIC_USEC="))) > 0);
  told.stopping(std::chrono::seconds(40));
  CHECK(manager.next().starts_with("STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000\n"));
  CHECK(manager.next().empty());
}

TEST_CASE("the service manager is told when no file can be opened") {
  const Manager manager;
  const ServiceManager told = ServiceManager::from_environment();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  told.notify("WATCHDOG=1");
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(manager.next() == "WATCHDOG=1");
}

TEST_CASE("a service manager that is slow learns of the process that replaces this one") {
  const Manager manager;
  ServiceManager told = ServiceManager::from_environment();
  for (int sent = 0; sent < 5'000; ++sent) told.notify("WATCHDOG=1");  // more than it keeps
  std::atomic<bool> asks{false};
  std::string last;
  int read = 0;
  std::thread reading([&] {
    while (!asks) std::this_thread::yield();
    while (last != "MAINPID=4242") {
      pollfd one{manager.socket(), POLLIN, 0};
      if (::poll(&one, 1, 5'000) != 1) return;
      last = manager.next();
      ++read;
    }
  });
  asks = true;
  told.replaced_by(4242);
  reading.join();
  CHECK(last == "MAINPID=4242");
  CHECK(read < 5'000);
}

TEST_CASE("no message is sent without a service manager of this process") {
  ServiceManager::from_environment().ready("Listening");
  const Manager manager;
  ::setenv("WATCHDOG_USEC", "2000000", 1);
  CHECK(ServiceManager::from_environment().watchdog() == std::chrono::seconds(2));
  ::setenv("WATCHDOG_PID", "1", 1);
  CHECK_FALSE(ServiceManager::from_environment().watchdog().has_value());
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  CHECK(ServiceManager::from_environment().watchdog() == std::chrono::seconds(2));
  ::setenv("WATCHDOG_USEC", "soon", 1);
  CHECK_FALSE(ServiceManager::from_environment().watchdog().has_value());
  ::setenv("LISTEN_PID", "1", 1);
  ::setenv("LISTEN_FDS", "2", 1);
  CHECK(ServiceManager::from_environment().take_sockets().empty());
}

TEST_CASE("the watchdog is fed while every loop answers") {
  Loop main_loop, first, second;
  int fed = 0;
  Watchdog watchdog(main_loop, {&first, &second}, std::chrono::milliseconds(40), [&] { ++fed; });
  watchdog.start();
  CHECK(fed == 1);
  const auto rounds = [&](bool second_lives) {
    const int before = fed;
    for (int i = 0; i < 10; ++i) {
      main_loop.io().run_for(std::chrono::milliseconds(11));
      first.io().poll();
      if (second_lives) second.io().poll();
    }
    return fed - before;
  };
  CHECK(rounds(true) >= 5);
  CHECK(rounds(false) <= 1);
  CHECK(rounds(false) == 0);
  CHECK(rounds(true) >= 5);  // it was busy, and is back
  watchdog.stop();
}

}  // namespace spillway::server
