// Names looked up on threads, with a resolver that answers when it is told to.
#include <catch2/catch.hpp>

#include <atomic>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proxy/base/name_lookup.h"

namespace spillway {
namespace {

const asio::ip::address an_address = asio::ip::make_address("192.0.2.7");

struct Held {
  std::atomic<int> asked{0};
  std::latch answer{1};

  NameLookup::Resolve resolve() {
    return [this](const std::string& host) -> Result<IpAddresses> {
      ++asked;
      answer.wait();
      if (host == "nowhere") return Error(ErrorCode::host_not_found, "no such name");
      return IpAddresses{an_address};
    };
  }
};

using Answer = std::optional<Result<IpAddresses>>;

Task<void> ask(NameLookup* lookup, Loop* loop, std::string host, TimePoint deadline, Answer* into,
               int* left) {
  auto looking = lookup->look_up(*loop, std::move(host), deadline);
  *into = co_await looking;
  if (--*left == 0) loop->stop();
}

struct World {
  std::shared_ptr<Held> held = std::make_shared<Held>();
  NameLookup lookup{[held = held](const std::string& host) { return held->resolve()(host); }};
  Loop loop;
  int left = 0;

  void start(const std::string& host, TimePoint deadline, Answer& into) {
    ++left;
    loop.spawn(ask(&lookup, &loop, host, deadline, &into, &left));
  }
};

TEST_CASE("a name is looked up once for all requests that come meanwhile", "[lookup]") {
  World world;
  std::vector<Answer> answers(5);
  for (Answer& into : answers) world.start("shard.example", time_point_never, into);
  Answer other;
  world.start("nowhere", time_point_never, other);
  world.held->answer.count_down();
  world.loop.run();
  CHECK(world.held->asked == 2);
  for (const Answer& got : answers) {
    REQUIRE(got.has_value());
    REQUIRE(got->has_value());
    CHECK((**got) == IpAddresses{an_address});
  }
  REQUIRE(other.has_value());
  CHECK(other->error().is(ErrorCode::host_not_found));
}

TEST_CASE("a lookup is left at the deadline, and its answer may come later",
          "[lookup]") {
  auto held = std::make_shared<Held>();
  {
    World world;
    held = world.held;
    Answer got;
    world.start("shard.example", Clock::now() + std::chrono::milliseconds(1), got);
    world.loop.run();
    REQUIRE(got.has_value());
    CHECK(got->error().is(ErrorCode::network_timeout));
    CHECK(got->error().message == "Timed out looking up shard.example");
  }
  held->answer.count_down();
}

TEST_CASE("one more name than may be under way is refused", "[lookup]") {
  World world;
  std::vector<Answer> answers(NameLookup::under_way_max);
  for (std::size_t i = 0; i < answers.size(); ++i)
    world.start("host" + std::to_string(i), time_point_never, answers[i]);
  Answer refused;
  world.start("another", time_point_never, refused);
  REQUIRE(refused.has_value());
  CHECK(refused->error().is(ErrorCode::too_many_files_open));  // which is not blamed on the host
  Answer joined;
  world.start("host1", time_point_never, joined);
  world.held->answer.count_down();
  world.loop.run();
  for (const Answer& got : answers) CHECK((got.has_value() && got->has_value()));
  CHECK((joined.has_value() && joined->has_value()));
}

TEST_CASE("the system knows this machine", "[lookup]") {
  Loop loop;
  int left = 1;
  Answer got;
  loop.spawn(ask(&NameLookup::system(), &loop, "localhost", time_point_never, &got, &left));
  loop.run();
  REQUIRE(got.has_value());
  REQUIRE(got->has_value());
  for (const asio::ip::address& address : **got) CHECK(address.is_loopback());
}

}  // namespace
}  // namespace spillway
