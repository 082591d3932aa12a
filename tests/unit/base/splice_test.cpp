#include "proxy/base/splice.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

#include "tests/unit/base/tcp_pair.h"

namespace spillway {
namespace {

// Passes what comes at one transport on to another, through pipes, until the first one's peer ends its stream.
Task<void> splice_on(Transport* from, Transport* to, std::size_t most, SplicePipes* pipes, std::size_t* passed) {
  for (;;) {
    auto pipe = pipes->take();
    REQUIRE(pipe);
    const IoResult got = pipe->fill(*from, most);
    if (got.would_block()) {
      pipes->give_back(*std::move(pipe));
      ReadyWait readable(*from, Transport::Direction::read, Clock::now() + tcp_patience);
      const bool ready = co_await readable;
      if (!ready) co_return;
      continue;
    }
    if (!got.ok()) break;
    CHECK(pipe->bytes() == got.bytes);
    *passed += got.bytes;
    while (!pipe->empty()) {
      const IoResult sent = pipe->drain(*to);
      if (sent.ok()) continue;
      REQUIRE(sent.would_block());
      ReadyWait writable(*to, Transport::Direction::write, Clock::now() + tcp_patience);
      const bool ready = co_await writable;
      if (!ready) co_return;
    }
    pipes->give_back(*std::move(pipe));
  }
  to->close();
}

// One connection that a peer writes, one that another peer reads; between them, pipes. One loop.
struct Relayed {
  TcpPair in;
  std::unique_ptr<Transport> out_near, out_far;

  Relayed() {
    asio::basic_socket_acceptor<asio::ip::tcp, asio::io_context::executor_type> acceptor(
        in.loop.io().get_executor(), asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    TcpSocket one(in.loop.io().get_executor());
    one.connect(acceptor.local_endpoint());
    TcpSocket other(in.loop.io().get_executor());
    acceptor.accept(other);
    out_near = make_tcp_transport(in.loop, std::move(one));
    out_far = make_tcp_transport(in.loop, std::move(other));
  }
};

Task<void> all_three(Task<void> one, Task<void> two, Task<void> three) {
  TaskGroup group;
  group.start(std::move(one));
  group.start(std::move(two));
  group.start(std::move(three));
  co_await group.wait();
}

}  // namespace

TEST_CASE("a stream that is spliced arrives whole", "[tcp]") {
  const std::size_t size = GENERATE(1, 5000, 300'000, 5'000'000);
  const std::size_t most = GENERATE(100, 70'000, 10'000'000);
  if (size > 5000 && most == 100) return;  // says nothing new, and takes long
  const std::string text = pattern(size);
  std::string read;
  std::size_t passed = 0;
  SplicePipes pipes;
  Relayed relayed;
  REQUIRE(relayed.in.far->can_splice());
  const bool ended = relayed.in.run(
      all_three(send_then_close(relayed.in.near.get(), &text),
                splice_on(relayed.in.far.get(), relayed.out_near.get(), most, &pipes, &passed),
                read_to_end(relayed.out_far.get(), 50'000, false, &read)));
  CHECK(ended);
  CHECK(passed == size);
  CHECK((read == text));
}

namespace {

// Until all is sent, or the transport is closed.
Task<void> send_what_fits(Transport* transport, const std::string* text, bool* ended) {
  iovec piece{const_cast<char*>(text->data()), text->size()};
  auto writing = write_all(*transport, {&piece, 1});
  co_await writing;
  *ended = true;
}

// Fills the pipe until a receiver that reads nothing has made the sender's socket full.
Task<void> fill_up(Transport* from, Transport* to, SplicePipe* pipe, std::size_t* sent) {
  for (;;) {
    if (pipe->empty()) {
      const IoResult got = pipe->fill(*from, SplicePipe::bytes_max);
      if (got.would_block()) {
        ReadyWait readable(*from, Transport::Direction::read, Clock::now() + tcp_patience);
        const bool ready = co_await readable;
        REQUIRE(ready);
        continue;
      }
      REQUIRE(got.ok());
    }
    const IoResult drained = pipe->drain(*to);
    if (!drained.ok()) {
      CHECK(drained.would_block());
      co_return;
    }
    *sent += drained.bytes;
  }
}

}  // namespace

TEST_CASE("what a full socket leaves in a pipe can be taken out", "[tcp]") {
  const std::string text = pattern(40'000'000);
  std::size_t sent = 0;
  Relayed relayed;
  auto pipe = SplicePipe::make();
  REQUIRE(pipe);
  bool sender_ended = false;
  relayed.in.loop.spawn(send_what_fits(relayed.in.near.get(), &text, &sender_ended));
  REQUIRE(relayed.in.run(fill_up(relayed.in.far.get(), relayed.out_near.get(), &*pipe, &sent)));
  REQUIRE_FALSE(pipe->empty());
  std::vector<std::uint8_t> left(pipe->bytes());
  REQUIRE(pipe->take(left));
  CHECK(pipe->empty());
  CHECK(std::equal(left.begin(), left.end(), reinterpret_cast<const std::uint8_t*>(text.data()) + sent));
  relayed.in.near->close();
  relayed.in.loop.io().restart();
  relayed.in.loop.io().poll();
  CHECK(sender_ended);
}

}  // namespace spillway
