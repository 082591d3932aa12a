// The TCP transport over real loopback sockets, one loop for both ends.
#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proxy/base/tcp_transport.h"
#include "tests/support/tcp_promise.h"
#include "tests/unit/base/tcp_pair.h"

namespace spillway {
namespace {

TEST_CASE("a stream arrives whole, however it is read", "[tcp]") {
  const std::size_t size = GENERATE(1, 63, 64, 65, 128, 5000, 300'000);
  const std::size_t step = GENERATE(1, 7, 64, 4096, 400'000);
  const bool wait_each_time = GENERATE(true, false);
  if (size > 5000 && step < 64) return;  // says nothing new, and takes long
  const std::string text = pattern(size);
  std::string read;
  TcpPair pair;
  const bool ended = pair.run(both(send_then_close(pair.near.get(), &text),
                                   read_to_end(pair.far.get(), step, wait_each_time, &read)));
  INFO("size " << size << ", step " << step << ", waiting each time " << wait_each_time);
  CHECK(ended);
  CHECK(read == text);
}

Task<void> send_pieces(Transport* transport, const std::vector<std::string>* texts) {
  std::vector<iovec> pieces;
  for (const std::string& text : *texts) pieces.push_back({const_cast<char*>(text.data()), text.size()});
  auto writing = write_all(*transport, pieces);
  const bool written = co_await writing;
  CHECK(written);
  transport->close();
}

TEST_CASE("pieces leave in order, gathered or not", "[tcp]") {
  const std::size_t size = GENERATE(0, 10, 1365, 1366, 100'000);
  const std::string middle = pattern(size);
  const std::vector<std::string> texts{"head of the message", middle, "", middle, "tail"};
  std::string expected;
  for (const std::string& text : texts) expected += text;
  std::string read;
  TcpPair pair;
  const bool ended = pair.run(
      both(send_pieces(pair.near.get(), &texts), read_to_end(pair.far.get(), 4096, false, &read)));
  CHECK(ended);
  CHECK(read == expected);
}

Task<void> wait_until(Transport* transport, TimePoint deadline, bool* ready, bool* timed_out) {
  ReadyWait readable(*transport, Transport::Direction::read, deadline);
  *ready = co_await readable;
  *timed_out = readable.timed_out();
}

TEST_CASE("a wait that timed out loses nothing", "[tcp]") {
  TcpPair pair;
  bool ready = true, timed_out = false;
  REQUIRE(pair.run(wait_until(pair.far.get(), Clock::now(), &ready, &timed_out)));
  CHECK_FALSE(ready);
  CHECK(timed_out);
  const std::string text = pattern(200);
  std::string read;
  CHECK(pair.run(both(send_then_close(pair.near.get(), &text), read_to_end(pair.far.get(), 16, false, &read))));
  CHECK(read == text);
}

TEST_CASE("bytes that were left in the socket make the next wait ready at once", "[tcp]") {
  TcpPair pair;
  const std::string text = pattern(40);
  REQUIRE(pair.run(send_all(pair.near.get(), &text)));
  bool ready = false, timed_out = true;
  REQUIRE(pair.run(wait_until(pair.far.get(), time_point_never, &ready, &timed_out)));
  CHECK(ready);
  std::vector<std::uint8_t> some(10);
  CHECK(pair.far->try_read(some).bytes == 10);
  ready = false;
  REQUIRE(pair.run(wait_until(pair.far.get(), time_point_never, &ready, &timed_out)));
  CHECK(ready);
  some.resize(100);
  CHECK(pair.far->try_read(some).bytes == 30);
  CHECK(pair.far->try_read(some).would_block());
}

TEST_CASE("a closed transport fails, whatever had arrived", "[tcp]") {
  TcpPair pair;
  const std::string text = pattern(40);
  REQUIRE(pair.run(send_all(pair.near.get(), &text)));
  bool ready = false, timed_out = false;
  REQUIRE(pair.run(wait_until(pair.far.get(), time_point_never, &ready, &timed_out)));
  pair.far->close();
  std::vector<std::uint8_t> some(10);
  CHECK(pair.far->try_read(some).status == IoResult::Status::failed);
}

TEST_CASE("the end of a stream right behind its bytes is noticed", "[tcp]") {
  TcpPair pair;
  const std::string text = pattern(40);
  REQUIRE(pair.run(send_then_close(pair.near.get(), &text)));
  while (!pair.far->peer_hung_up()) std::this_thread::yield();
  bool ready = false, timed_out = false;
  REQUIRE(pair.run(wait_until(pair.far.get(), Clock::now() + tcp_patience, &ready, &timed_out)));
  std::vector<std::uint8_t> some(100);
  CHECK(pair.far->try_read(some).bytes == 40);
  ready = false;
  REQUIRE(pair.run(wait_until(pair.far.get(), Clock::now() + tcp_patience, &ready, &timed_out)));
  CHECK(ready);
  CHECK(pair.far->try_read(some).status == IoResult::Status::closed);
}

Task<void> close_when_ready(Transport* transport, std::unique_ptr<Transport>* victim) {
  ReadyWait readable(*transport, Transport::Direction::read, Clock::now() + tcp_patience);
  const bool ready = co_await readable;
  CHECK(ready);
  victim->reset();
}

TEST_CASE("a transport may be destroyed by another one's reader in the same turn", "[tcp]") {
  TcpPair pair;
  const std::string text = pattern(10);
  REQUIRE(pair.run(send_all(pair.near.get(), &text)));
  REQUIRE(pair.run(send_all(pair.far.get(), &text)));
  // Both ends are readable now; the near one's reader destroys the far one.
  CHECK(pair.run(close_when_ready(pair.near.get(), &pair.far)));
  CHECK(pair.far == nullptr);
}

Task<void> fill(Transport* transport, std::size_t* written) {
  const std::string chunk = pattern(64 * 1024);
  iovec piece{const_cast<char*>(chunk.data()), chunk.size()};
  for (;;) {
    const IoResult wrote = transport->try_write({&piece, 1});
    if (wrote.would_block()) co_return;
    CHECK(wrote.ok());
    *written += wrote.bytes;
  }
}

Task<void> wait_writable(Transport* transport, bool* ready) {
  ReadyWait writable(*transport, Transport::Direction::write, Clock::now() + tcp_patience);
  *ready = co_await writable;
}

TEST_CASE("a full socket is writable again when its peer has read", "[tcp]") {
  TcpPair pair;
  std::size_t written = 0;
  REQUIRE(pair.run(fill(pair.near.get(), &written)));
  bool ready = false;
  CHECK(pair.run(both(wait_writable(pair.near.get(), &ready), read_count(pair.far.get(), written))));
  CHECK(ready);
}

Task<void> connect_to(Network* network, std::uint16_t port, std::unique_ptr<Transport>* into) {
  auto connecting = network->connect("127.0.0.1", port, Clock::now() + tcp_patience);
  auto connected = co_await connecting;
  REQUIRE(connected.has_value());
  *into = std::move(*connected);
}

Task<void> wait_to_read(Transport* transport, Duration patience, bool* ready) {
  ReadyWait readable(*transport, Transport::Direction::read, Clock::now() + patience);
  *ready = co_await readable;
}

TEST_CASE("a wait for much goes on until it is there, or nothing more comes", "[tcp]") {
  TcpPair pair;
  const std::string half = pattern(32 * 1024);
  std::vector<std::uint8_t> room(half.size() * 3);
  pair.near->set_read_low_water(half.size() + 1);
  CHECK(pair.near->try_read(room).would_block());
  bool ready = false;
  REQUIRE(pair.run(send_all(pair.far.get(), &half)));
  REQUIRE(pair.run(wait_to_read(pair.near.get(), std::chrono::milliseconds(20), &ready)));
  CHECK_FALSE(ready);
  SECTION("it is there") {
    REQUIRE(pair.run(send_all(pair.far.get(), &half)));
    REQUIRE(pair.run(wait_to_read(pair.near.get(), tcp_patience, &ready)));
    CHECK(ready);
    CHECK(pair.near->try_read(room).bytes == 2 * half.size());
  }
  SECTION("nothing more comes") {
    pair.far->close();
    REQUIRE(pair.run(wait_to_read(pair.near.get(), tcp_patience, &ready)));
    CHECK(ready);
    CHECK(pair.near->try_read(room).bytes == half.size());
  }
  SECTION("less is enough") {
    pair.near->set_read_low_water(1);
    REQUIRE(pair.run(wait_to_read(pair.near.get(), tcp_patience, &ready)));
    CHECK(ready);
  }
  SECTION("it is read without a wait") { CHECK(pair.near->try_read(room).bytes == half.size()); }
}

TEST_CASE("a wait for much leaves the peer most of a set receive buffer", "[tcp]") {
  TcpOptions options;
  options.receive_buffer_bytes = 64 * 1024;
  TcpPair pair(options);
  const std::string quarter = pattern(16 * 1024);
  pair.near->set_read_low_water(256 * 1024);
  bool ready = false;
  REQUIRE(pair.run(send_all(pair.far.get(), &quarter)));
  REQUIRE(pair.run(wait_to_read(pair.near.get(), tcp_patience, &ready)));
  CHECK(ready);
}

std::uint32_t promised_by_a_connection(int receive_buffer_bytes) {
  TcpPair pair;  // for its loop
  asio::basic_socket_acceptor<asio::ip::tcp, asio::io_context::executor_type> acceptor(
      pair.loop.io().get_executor(), asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  TcpOptions options;
  options.receive_buffer_bytes = receive_buffer_bytes;
  TcpNetwork network(pair.loop, options);
  REQUIRE(pair.run(connect_to(&network, acceptor.local_endpoint().port(), &pair.near)));
  TcpSocket shard(pair.loop.io().get_executor());
  acceptor.accept(shard);
  const auto promised = promised_bytes(shard.native_handle());
  REQUIRE(promised.has_value());
  return *promised;
}

TEST_CASE("a shard is promised no more than the connection's receive buffer holds", "[tcp]") {
  for (const int kib : {32, 44, 256}) {
    CHECK(promised_by_a_connection(kib * 1024) <= 2U * 1024U * static_cast<unsigned>(kib));
  }
}

// What the kernel says of a connected transport's buffers, by its end's port.
int option_of(const Transport& transport, int name) {
  const std::string wanted = transport.local();
  for (int fd = 3; fd < 1024; ++fd) {
    asio::ip::tcp::endpoint end;
    auto length = static_cast<socklen_t>(end.capacity());
    if (::getsockname(fd, end.data(), &length) != 0) continue;
    end.resize(length);
    if ("127.0.0.1:" + std::to_string(end.port()) != wanted) continue;
    asio::ip::tcp::endpoint peer;
    length = static_cast<socklen_t>(peer.capacity());
    if (::getpeername(fd, peer.data(), &length) != 0) continue;
    int value = 0;
    length = sizeof value;
    REQUIRE(::getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0);
    return value;
  }
  FAIL("no such socket");
  return 0;
}

TEST_CASE("a set receive buffer grows for much out of what sockets may grow by, until its connection ends", "[tcp]") {
  SocketGrowth growth(nullptr);
  growth.set_limits(10 << 20, 0);
  TcpOptions options;
  options.receive_buffer_bytes = 64 * 1024;
  options.growth = &growth;
  TcpPair pair(options);
  CHECK(growth.own().usage().used_bytes == 0);
  pair.near->set_read_low_water(1);
  CHECK(growth.own().usage().used_bytes == 0);
  const int before = option_of(*pair.near, SO_RCVBUF);
  pair.near->set_read_low_water(64 * 1024);
  CHECK(growth.own().usage().used_bytes == 1 << 20);
  CHECK(option_of(*pair.near, SO_RCVBUF) >= before + (1 << 20));
  pair.near->set_read_low_water(1);  // the promise stands
  pair.near->set_read_low_water(64 * 1024);
  CHECK(growth.own().usage().used_bytes == 1 << 20);
  pair.near->close();
  CHECK(growth.own().usage().used_bytes == 0);
}

TEST_CASE("the grown receive buffer of an unread stream shrinks once it is full, and no byte is lost",
          "[tcp]") {
  SocketGrowth growth(nullptr);
  growth.set_limits(12 << 20, 0);
  TcpOptions options;
  options.receive_buffer_bytes = 64 * 1024;
  options.growth = &growth;
  TcpPair pair(options);
  const int before = option_of(*pair.near, SO_RCVBUF);
  pair.near->set_read_low_water(64 * 1024);
  REQUIRE(option_of(*pair.near, SO_RCVBUF) > before);
  const std::string text = pattern(8 << 20);
  std::string read;
  const auto read_later = [](TcpPair* both_ends, int small, std::string* into) -> Task<void> {
    const TimePoint end = Clock::now() + tcp_patience;
    while (option_of(*both_ends->near, SO_RCVBUF) > small && Clock::now() < end) {
      co_await both_ends->loop.sleep_for(std::chrono::milliseconds(20));
    }
    auto reading = read_to_end(both_ends->near.get(), 100'000, false, into);
    co_await reading;
  };
  REQUIRE(pair.run(both(send_then_close(pair.far.get(), &text), read_later(&pair, before, &read))));
  CHECK(option_of(*pair.near, SO_RCVBUF) == before);
  CHECK(read == text);
  const TimePoint end = Clock::now() + tcp_patience;
  bool ready = false;
  while (growth.own().usage().used_bytes > 0 && Clock::now() < end) {
    REQUIRE(pair.run(wait_to_read(pair.near.get(), std::chrono::milliseconds(50), &ready)));
  }
  CHECK(growth.own().usage().used_bytes == 0);
}

TEST_CASE("a set send buffer grows when its peer takes less, and shrinks once it is empty", "[tcp]") {
  SocketGrowth growth(nullptr);
  growth.set_limits(40 << 20, 0);
  TcpOptions options;
  options.send_buffer_bytes = 64 * 1024;
  options.growth = &growth;
  TcpPair pair(options);
  const int before = option_of(*pair.near, SO_SNDBUF);
  std::size_t written = 0;
  REQUIRE(pair.run(fill(pair.near.get(), &written)));
  CHECK(growth.own().usage().used_bytes == 1 << 20);
  CHECK(option_of(*pair.near, SO_SNDBUF) == before + (1 << 20));
  SECTION("its peer takes all") {
    bool ready = false;
    REQUIRE(pair.run(read_count(pair.far.get(), written)));
    const TimePoint end = Clock::now() + tcp_patience;
    while (growth.own().usage().used_bytes > 0 && Clock::now() < end) {
      REQUIRE(pair.run(wait_to_read(pair.near.get(), std::chrono::milliseconds(50), &ready)));
    }
    CHECK(option_of(*pair.near, SO_SNDBUF) == before);
  }
  SECTION("its connection ends") { pair.near->close(); }
  CHECK(growth.own().usage().used_bytes == 0);
}

TEST_CASE("what the kernel does not grant is not paid for, nor wanted back", "[tcp]") {
  MemoryBudget payload("payload", 24 << 20);
  SocketGrowth growth(&payload);
  growth.set_limits(0, 12 << 20);
  TcpOptions options;
  options.send_buffer_bytes = options.receive_buffer_bytes = 512 << 20;  // more than it grants in the first place
  options.growth = &growth;
  TcpPair pair(options);
  pair.near->set_read_low_water(64 * 1024);
  CHECK(growth.borrowed().usage().used_bytes == 0);
  std::size_t written = 0;
  REQUIRE(pair.run(fill(pair.near.get(), &written)));
  CHECK(growth.borrowed().usage().used_bytes == 0);
  const std::optional<Reservation> others = payload.try_reserve(20 << 20);
  REQUIRE(others);
  CHECK_FALSE(pair.near->holds_wanted_memory());
}

// Its near end has filled a send buffer that grew into half of a budget.
struct FullPair {
  MemoryBudget payload;
  SocketGrowth growth;
  TcpPair pair;
  std::size_t written = 0;

  explicit FullPair(std::uint64_t payload_bytes)
      : payload("payload", payload_bytes), growth(&payload), pair(borrowing(growth, payload_bytes / 2)) {
    REQUIRE(pair.run(fill(pair.near.get(), &written)));
    REQUIRE(growth.borrowed().usage().used_bytes > 0);
  }
  static TcpOptions borrowing(SocketGrowth& growth, std::uint64_t bytes_max) {
    growth.set_limits(0, bytes_max);
    TcpOptions options;
    options.send_buffer_bytes = 64 * 1024;
    options.growth = &growth;
    return options;
  }
};

// Keeps its peer's buffer full for as long as that reads.
Task<void> stream_on(Transport* transport) {
  const std::string chunk = pattern(64 * 1024);
  for (;;) {
    iovec piece{const_cast<char*>(chunk.data()), chunk.size()};
    auto writing = write_all(*transport, {&piece, 1});
    const bool written = co_await writing;
    if (!written) co_return;
  }
}

Task<void> take_slowly(Transport* transport, Duration pause, TimePoint until, bool* taken_all) {
  std::vector<std::uint8_t> room(64 * 1024);
  while (Clock::now() < until) {
    const IoResult got = transport->try_read(room);
    *taken_all = got.ok() || got.would_block();
    if (!*taken_all) co_return;
    co_await transport->loop().sleep_until(Clock::now() + pause);
  }
  transport->close();
}

// The proxy looks ten times, a second apart, before it closes a connection: both peers are looked at meanwhile.
TEST_CASE("of peers whose buffers others need, those that take what comes keep their connections", "[tcp]") {
  FullPair taking(12 << 20), stuck(24 << 20);
  REQUIRE(stuck.pair.run(fill(stuck.pair.near.get(), &stuck.written)));
  const std::optional<Reservation> others = taking.payload.try_reserve(11 << 20);
  REQUIRE(others);
  const std::optional<Reservation> others_of_stuck = stuck.payload.try_reserve(22 << 20);
  REQUIRE(others_of_stuck);
  bool taken_all = false, ended = false;
  const TimePoint until = Clock::now() + std::chrono::seconds(13);
  taking.pair.loop.spawn(TcpPair::mark(
      both(stream_on(taking.pair.near.get()),
           take_slowly(taking.pair.far.get(), std::chrono::milliseconds(5), until, &taken_all)),
      &ended));
  while ((!ended || stuck.growth.borrowed().usage().used_bytes > 0) && Clock::now() < until + tcp_patience) {
    for (Loop* loop : {&taking.pair.loop, &stuck.pair.loop}) {
      loop->io().restart();
      loop->io().run_one_for(std::chrono::milliseconds(1));
    }
  }
  CHECK(ended);
  CHECK(taken_all);
  CHECK(taking.growth.borrowed().usage().used_bytes == 0);
  CHECK(stuck.growth.borrowed().usage().used_bytes == 0);
  const std::string text = pattern(10);
  const iovec piece{const_cast<char*>(text.data()), text.size()};
  CHECK(stuck.pair.near->try_write({&piece, 1}).status == IoResult::Status::failed);
  CHECK(stuck.pair.near->peer_hung_up());
}

TEST_CASE("buffers stay as they are where little is left for sockets to grow by", "[tcp]") {
  SocketGrowth growth(nullptr);
  growth.set_limits(128 * 1024, 0);
  TcpOptions options;
  options.send_buffer_bytes = options.receive_buffer_bytes = 64 * 1024;
  options.growth = &growth;
  TcpPair pair(options);
  pair.near->set_read_low_water(64 * 1024);
  std::size_t written = 0;
  REQUIRE(pair.run(fill(pair.near.get(), &written)));
  CHECK(growth.own().usage().used_bytes == 0);
}

TEST_CASE("a grown buffer is wanted back when the payload's memory that pays for it is short", "[tcp]") {
  MemoryBudget payload("payload", 24 << 20);
  SocketGrowth growth(&payload);
  growth.set_limits(0, 10 << 20);
  TcpOptions options;
  options.receive_buffer_bytes = options.send_buffer_bytes = 64 * 1024;
  options.growth = &growth;
  TcpPair pair(options);
  const int before = option_of(*pair.near, SO_SNDBUF);
  pair.near->set_read_low_water(64 * 1024);
  std::size_t written = 0;
  REQUIRE(pair.run(fill(pair.near.get(), &written)));
  CHECK(payload.usage().used_bytes == (1 << 20) + (1 << 18));
  CHECK_FALSE(pair.near->holds_wanted_memory());
  std::optional<Reservation> others = payload.try_reserve(20 << 20);
  REQUIRE(others);
  CHECK(pair.near->holds_wanted_memory());
  const TimePoint end = Clock::now() + tcp_patience;
  bool ready = false;
  while (option_of(*pair.near, SO_SNDBUF) > before && Clock::now() < end) {
    REQUIRE(pair.run(wait_to_read(pair.near.get(), std::chrono::milliseconds(50), &ready)));
  }
  CHECK(option_of(*pair.near, SO_SNDBUF) == before);
  CHECK(growth.borrowed().usage().used_bytes >= 1 << 20);  // the receive buffer's, while the connection lives
  others.reset();
  CHECK_FALSE(pair.near->holds_wanted_memory());
  while (!pair.near->holds_wanted_memory() && Clock::now() < end) {
    REQUIRE(pair.run(wait_to_read(pair.near.get(), std::chrono::milliseconds(50), &ready)));
  }
  CHECK(pair.near->holds_wanted_memory());  // for nothing has come for seconds
  pair.near->close();
  CHECK(payload.usage().used_bytes == 0);
}

using Acceptor = asio::basic_socket_acceptor<asio::ip::tcp, asio::io_context::executor_type>;

asio::ip::tcp::endpoint loopback(unsigned last, std::uint16_t port) {
  return {asio::ip::address_v4(0x7f000000u + last), port};
}

// A host with two addresses, of which the first answers nothing: what connects there finds the line full.
struct HalfDeadHost {
  TcpPair pair;  // for its loop
  Acceptor silent{pair.loop.io().get_executor()}, alive{pair.loop.io().get_executor()};
  std::vector<FileDescriptor> line;
  std::uint16_t port = 0;
  NameLookup names{[](const std::string&) -> Result<IpAddresses> {
    return IpAddresses{loopback(2, 0).address(), loopback(1, 0).address()};
  }};

  HalfDeadHost() {
    alive.open(asio::ip::tcp::v4());
    alive.bind(loopback(1, 0));
    alive.listen();
    port = alive.local_endpoint().port();
    silent.open(asio::ip::tcp::v4());
    silent.bind(loopback(2, port));
    silent.listen(0);
    bool full = false;
    while (!full && line.size() < 100) {
      const int one = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      line.emplace_back(one);
      const auto there = loopback(2, port);
      const bool waits = ::connect(one, there.data(), static_cast<socklen_t>(there.size())) != 0;
      pollfd connected{one, POLLOUT, 0};
      full = waits && ::poll(&connected, 1, 100) == 0;
    }
    REQUIRE(full);
  }
};

Task<void> connect_by_name(TcpNetwork* network, std::uint16_t port, Duration patience,
                           std::optional<Result<std::unique_ptr<Transport>>>* into) {
  auto connecting = network->connect("shard.example", port, Clock::now() + patience);
  into->emplace(co_await connecting);
}

TEST_CASE("an address that answers nothing leaves time for the host's others", "[tcp]") {
  HalfDeadHost host;
  TcpNetwork network(host.pair.loop, {}, host.names);
  std::optional<Result<std::unique_ptr<Transport>>> connected;
  REQUIRE(host.pair.run(connect_by_name(&network, host.port, std::chrono::seconds(3), &connected)));
  REQUIRE(connected.has_value());
  REQUIRE(connected->has_value());
  CHECK((**connected)->peer() == "127.0.0.1:" + std::to_string(host.port));
}

Task<void> fail_to_write(Transport* transport) {
  ReadyWait writable(*transport, Transport::Direction::write, Clock::now() + tcp_patience);
  const bool ready = co_await writable;
  CHECK(ready);
  const std::string text = pattern(10);
  const iovec piece{const_cast<char*>(text.data()), text.size()};
  CHECK(transport->try_write({&piece, 1}).status == IoResult::Status::failed);
}

TEST_CASE("a peer that takes nothing for too long is told from one that left", "[tcp]") {
  TcpOptions options;
  options.user_timeout_ms = 100;
  TcpPair pair(options);
  std::size_t written = 0;
  SECTION("it takes nothing") {
    REQUIRE(pair.run(fill(pair.near.get(), &written)));
    CHECK_FALSE(pair.near->timed_out());
    REQUIRE(pair.run(fail_to_write(pair.near.get())));
    CHECK(pair.near->timed_out());
    pair.near->reset();
    CHECK(pair.near->timed_out());
  }
  SECTION("it left") {
    REQUIRE(pair.run(fill(pair.near.get(), &written)));
    pair.far->reset();
    REQUIRE(pair.run(fail_to_write(pair.near.get())));
    CHECK_FALSE(pair.near->timed_out());
  }
}

}  // namespace
}  // namespace spillway
