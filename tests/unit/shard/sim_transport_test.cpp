#include "tests/support/sim_transport.h"

#include <catch2/catch.hpp>

#include "tests/support/clock_manual.h"

using namespace spillway;
using namespace spillway::test;
using namespace std::chrono_literals;

namespace {

Task<void> echo(std::unique_ptr<Transport> transport) {
  std::uint8_t bytes[100];
  for (;;) {
    ReadyWait readable(*transport, Transport::Direction::read);
    if (!co_await readable) co_return;
    const IoResult got = transport->try_read(bytes);
    if (got.would_block()) continue;
    if (!got.ok()) co_return;
    iovec piece{bytes, got.bytes};
    auto writing = write_all(*transport, {&piece, 1});
    if (!co_await writing) co_return;
  }
}

Task<void> send(Transport* transport, std::string text, bool* sent) {
  iovec piece{text.data(), text.size()};
  auto writing = write_all(*transport, {&piece, 1});
  *sent = co_await writing;
}

Task<void> receive(Transport* transport, std::string* into, bool* received) {
  auto reading = read_exactly(
      *transport, MutableBytes(reinterpret_cast<std::uint8_t*>(into->data()), into->size()));
  *received = co_await reading;
}

Task<void> connect_to(SimNetwork* network, TimePoint deadline,
                      std::optional<Result<std::unique_ptr<Transport>>>* result) {
  auto connecting = network->connect("a", 1, deadline);
  result->emplace(co_await connecting);
}

// What comes back of `text`, and when.
std::string round_trip(Loop& loop, SimNetwork& network, const std::string& text) {
  auto client = network.connect_client("a", 1);
  REQUIRE(client);
  bool sent = false, received = false;
  std::string back(text.size(), '\0');
  loop.spawn(send(client.get(), text, &sent));
  loop.spawn(receive(client.get(), &back, &received));
  run_until(
      loop, [&] { return received; }, 1h);
  client.reset();
  loop.poll_until_idle();
  return received ? back : "lost";
}

}  // namespace

TEST_CASE("bytes pass in order, however they are cut") {
  const std::string text = [] {
    std::string bytes(200'000, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    return bytes;
  }();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    FaultOptions faults = FaultOptions::swarm(seed);
    faults.reset_permille = faults.half_close_permille = faults.refuse_percent = 0;
    Loop loop(Loop::Drive::manual);
    SimNetwork network(loop, faults);
    network.listen("a", 1, echo);
    INFO("seed " << seed);
    CHECK(round_trip(loop, network, text) == text);
    run_for(loop, 10s);
  }
}

TEST_CASE("the same seed gives the same run") {
  const auto run = [](std::uint64_t seed) {
    Loop loop(Loop::Drive::manual);
    FaultOptions faults = FaultOptions::swarm(seed);
    faults.latency_max = 5ms;
    faults.reset_permille = 20;
    SimNetwork network(loop, faults);
    network.listen("a", 1, echo);
    const TimePoint start = Clock::now();
    std::vector<std::int64_t> times;
    for (int i = 0; i < 20; ++i) {
      if (round_trip(loop, network, std::string(5'000, 'x')) == "lost") times.push_back(-1);
      times.push_back((Clock::now() - start).count());
    }
    run_for(loop, 10s);
    return times;
  };
  CHECK(run(3) == run(3));
  CHECK(run(3) != run(4));
}

TEST_CASE("latency is virtual time") {
  Loop loop(Loop::Drive::manual);
  FaultOptions faults;
  faults.latency_min = faults.latency_max = 50ms;
  SimNetwork network(loop, faults);
  network.listen("a", 1, echo);
  const TimePoint start = Clock::now();
  CHECK(round_trip(loop, network, "hello") == "hello");
  CHECK(Clock::now() - start == 100ms);
  run_for(loop, 1s);
}

TEST_CASE("a writer waits for a reader") {
  Loop loop(Loop::Drive::manual);
  SimNetwork network(loop);
  auto [near, far] = network.pair();
  bool sent = false, received = false;
  loop.spawn(send(near.get(), std::string(300'000, 'x'), &sent));
  run_for(loop, 1s);
  CHECK_FALSE(sent);
  std::string into(300'000, '\0');
  loop.spawn(receive(far.get(), &into, &received));
  run_for(loop, 1s);
  CHECK(sent);
  CHECK(received);
}

TEST_CASE("how connections end") {
  Loop loop(Loop::Drive::manual);
  SimNetwork network(loop);
  std::uint8_t bytes[10];
  SECTION("closed: what was sent arrives first") {
    auto [near, far] = network.pair();
    bool sent = false;
    loop.spawn(send(near.get(), "bye", &sent));
    near->close();
    loop.poll_until_idle();
    CHECK(far->try_read(bytes).bytes == 3);
    CHECK(far->try_read(bytes).status == IoResult::Status::closed);
  }
  SECTION("reset: nothing more") {
    auto [near, far] = network.pair();
    bool sent = false;
    loop.spawn(send(near.get(), "bye", &sent));
    near->reset();
    CHECK(far->try_read(bytes).status == IoResult::Status::failed);
  }
  SECTION("a wait is aborted by close") {
    auto [near, far] = network.pair();
    std::string into(3, '\0');
    bool received = true;
    loop.spawn(receive(near.get(), &into, &received));
    near->close();
    loop.poll_until_idle();
    CHECK_FALSE(received);
  }
  SECTION("a wait is aborted by its deadline") {
    auto [near, far] = network.pair();
    struct Waiting {
      static Task<void> run(Transport* transport, bool* timed_out) {
        ReadyWait readable(*transport, Transport::Direction::read, Clock::now() + 1s);
        const bool ready = co_await readable;
        *timed_out = !ready && readable.timed_out();
      }
    };
    bool timed_out = false;
    loop.spawn(Waiting::run(near.get(), &timed_out));
    run_for(loop, 999ms);
    CHECK_FALSE(timed_out);
    run_for(loop, 1ms);
    CHECK(timed_out);
  }
}

TEST_CASE("hosts that are gone") {
  Loop loop(Loop::Drive::manual);
  SimNetwork network(loop);
  network.listen("a", 1, echo);
  std::optional<Result<std::unique_ptr<Transport>>> result;
  const auto connect = [&](Duration limit) {
    result.reset();
    loop.spawn(connect_to(&network, Clock::now() + limit, &result));
  };
  SECTION("killed: refused") {
    network.kill("a", 1);
    connect(10s);
    loop.poll_until_idle();
    REQUIRE(result);
    CHECK(result->error().is(ErrorCode::host_unreachable));
  }
  SECTION("vanished: the deadline passes") {
    network.vanish("a", 1);
    connect(10s);
    run_for(loop, 9s);
    CHECK_FALSE(result);
    run_for(loop, 1s);
    REQUIRE(result);
    CHECK(result->error().is(ErrorCode::network_timeout));
  }
  SECTION("frozen: accepted, silent; thawed: it answers") {
    network.freeze("a", 1);
    connect(10s);
    loop.poll_until_idle();
    REQUIRE(result);
    REQUIRE(result->has_value());
    bool sent = false, received = false;
    std::string back(5, '\0');
    loop.spawn(send((*result)->get(), "hello", &sent));
    loop.spawn(receive((*result)->get(), &back, &received));
    run_for(loop, 30s);
    CHECK(sent);
    CHECK_FALSE(received);
    network.thaw("a", 1);
    loop.poll_until_idle();
    CHECK(back == "hello");
  }
  result.reset();
  run_for(loop, 1s);
}
