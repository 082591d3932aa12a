// Both ends of a TCP connection on loopback, on one loop, and what tests do with them.
#pragma once

#include <catch2/catch.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "proxy/base/tcp_transport.h"

namespace spillway {

inline constexpr auto tcp_patience = std::chrono::seconds(20);

struct TcpPair {
  Loop loop;
  std::unique_ptr<Transport> near, far;

  explicit TcpPair(const TcpOptions& near_options = {}) {
    asio::basic_socket_acceptor<asio::ip::tcp, asio::io_context::executor_type> acceptor(
        loop.io().get_executor(), asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    TcpSocket one(loop.io().get_executor());
    one.connect(acceptor.local_endpoint());
    TcpSocket other(loop.io().get_executor());
    acceptor.accept(other);
    near = make_tcp_transport(loop, std::move(one), near_options);
    far = make_tcp_transport(loop, std::move(other));
  }
  ~TcpPair() {
    near.reset();
    far.reset();
    loop.io().restart();
    loop.io().poll();
  }
  // Runs the loop until the task has ended. False: it did not within the patience.
  bool run(Task<void> task) {
    bool ended = false;
    loop.spawn(mark(std::move(task), &ended));
    const auto until = std::chrono::steady_clock::now() + tcp_patience;
    while (!ended && std::chrono::steady_clock::now() < until) {
      loop.io().restart();
      loop.io().run_one_for(std::chrono::milliseconds(50));
    }
    return ended;
  }
  static Task<void> mark(Task<void> task, bool* ended) {
    co_await task;
    *ended = true;
  }
};

inline std::string pattern(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

inline Task<void> send_all(Transport* transport, const std::string* text) {
  iovec piece{const_cast<char*>(text->data()), text->size()};
  auto writing = write_all(*transport, {&piece, 1});
  const bool written = co_await writing;
  CHECK(written);
}

// Reads until the stream ends, at most `step` bytes at a time, waiting only when a read finds nothing.
inline Task<void> read_to_end(Transport* transport, std::size_t step, bool wait_each_time, std::string* into) {
  std::vector<std::uint8_t> room(step);
  for (;;) {
    if (wait_each_time) {
      ReadyWait readable(*transport, Transport::Direction::read, Clock::now() + tcp_patience);
      const bool ready = co_await readable;
      if (!ready) co_return;
    }
    const IoResult got = transport->try_read(room);
    if (got.ok()) {
      into->append(reinterpret_cast<const char*>(room.data()), got.bytes);
      continue;
    }
    if (!got.would_block()) {
      CHECK(got.status == IoResult::Status::closed);
      co_return;
    }
    ReadyWait readable(*transport, Transport::Direction::read, Clock::now() + tcp_patience);
    const bool ready = co_await readable;
    if (!ready) co_return;
  }
}

inline Task<void> send_then_close(Transport* transport, const std::string* text) {
  auto sending = send_all(transport, text);
  co_await sending;
  transport->close();
}

inline Task<void> both(Task<void> one, Task<void> other) {
  TaskGroup group;
  group.start(std::move(one));
  group.start(std::move(other));
  co_await group.wait();
}

inline Task<void> read_count(Transport* transport, std::size_t count) {
  std::vector<std::uint8_t> room(count);
  auto reading = read_exactly(*transport, room, Clock::now() + tcp_patience);
  const bool read = co_await reading;
  CHECK(read);
}

}  // namespace spillway
