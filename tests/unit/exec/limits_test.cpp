// Limits of users and addresses, on time that a test moves.
#include "proxy/exec/tables/limits.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <thread>
#include <vector>

#include "tests/support/clock_manual.h"

namespace spillway::exec {
namespace {

using namespace std::chrono_literals;

LimitSettings per_address(LimitValues values) {
  LimitSettings settings;
  settings.per[static_cast<std::size_t>(LimitKey::address)] = values;
  return settings;
}

LimitOverride override_of(LimitKey key, std::string name, LimitValues values) {
  LimitOverride one{key, std::move(name), {}, values};
  if (key == LimitKey::address) one.range = AddressRange::parse(one.name).value();
  return one;
}

int admitted(ClientLimits& client, int tries = 1'000) {
  int count = 0;
  for (int i = 0; i < tries; ++i) count += client.admit(Clock::now(), false) ? 0 : 1;
  return count;
}

TEST_CASE("connections are counted, refused beyond the limit, and let in when one has gone", "[limits]") {
  Limits limits;
  limits.configure(per_address({.connections = 2}));
  ClientLimits a, b;
  {
    ClientLimits c;
    CHECK_FALSE(a.enter(limits, LimitKey::address, "10.0.0.1"));
    CHECK_FALSE(c.enter(limits, LimitKey::address, "10.0.0.1"));
    const auto refused = b.enter(limits, LimitKey::address, "10.0.0.1");
    REQUIRE(refused.has_value());
    CHECK(refused->is(ErrorCode::ingress_request_rate_limit_exceeded));
    CHECK(refused->labels == std::vector<std::string>{"SystemOverloadedError", "RetryableError"});
    CHECK(refused->message == "the address '10.0.0.1' has reached its limit of 2 connections; try again later");
    CHECK_FALSE(b.has(LimitKey::address));
  }
  CHECK_FALSE(b.enter(limits, LimitKey::address, "10.0.0.1"));
  CHECK(b.enter(limits, LimitKey::address, "10.0.0.1") == std::nullopt);  // is already
  CHECK(limits.usage(LimitKey::address).refused[static_cast<std::size_t>(LimitOf::connections)] == 1);
  CHECK(limits.usage(LimitKey::address).tracked == 1);
}

TEST_CASE("unused entries are forgotten", "[limits]") {
  Limits limits;
  for (int i = 0; i < 1'000; ++i) {
    ClientLimits client;
    client.enter(limits, LimitKey::address, fmt::format("10.0.{}.{}", i / 250, i % 250));
  }
  CHECK(limits.usage(LimitKey::address).tracked == 0);
}

TEST_CASE("a new connection does not fill its address' bucket", "[limits]") {
  Limits limits;
  limits.configure(per_address({.operations_per_second = 20}));
  CHECK(limits.looks_at_operations());
  int done = 0;
  for (int i = 0; i < 10; ++i) {
    ClientLimits client;
    client.enter(limits, LimitKey::address, "10.0.0.1");
    done += admitted(client, 5);
  }
  CHECK(done == 20);
  // And is forgotten when it would be full.
  CHECK(limits.usage(LimitKey::address).tracked == 1);
  test::advance_time(3s);
  { ClientLimits other; other.enter(limits, LimitKey::address, "10.0.0.2"); }
  { ClientLimits other; other.enter(limits, LimitKey::address, "10.0.0.2"); }
  CHECK(limits.usage(LimitKey::address).tracked == 0);
}

TEST_CASE("addresses by the thousand take bounded memory, whatever they did", "[limits]") {
  constexpr std::size_t idle_max = 100;
  Limits limits(idle_max);
  limits.configure(per_address({.operations_per_second = 1}));
  for (int i = 0; i < 5'000; ++i) {
    ClientLimits client;
    client.enter(limits, LimitKey::address, fmt::format("10.{}.{}.1", i / 250, i % 250));
    CHECK_FALSE(client.admit(Clock::now(), false));
  }
  CHECK(limits.usage(LimitKey::address).tracked <= idle_max + 1);
  // Coming and going by one of them does not make it grow either.
  for (int i = 0; i < 5'000; ++i) {
    ClientLimits client;
    client.enter(limits, LimitKey::address, "10.1.1.1");
  }
  CHECK(limits.usage(LimitKey::address).tracked <= idle_max + 1);
}

TEST_CASE("each key's tokens are taken, or none", "[limits]") {
  Limits limits;
  LimitSettings settings;
  settings.per[static_cast<std::size_t>(LimitKey::user)] = {.operations_per_second = 100};
  settings.per[static_cast<std::size_t>(LimitKey::address)] = {.operations_per_second = 7};
  limits.configure(settings);
  ClientLimits at_home, away;
  at_home.enter(limits, LimitKey::user, "admin.ann");
  at_home.enter(limits, LimitKey::address, "10.0.0.1");
  away.enter(limits, LimitKey::user, "admin.ann");
  away.enter(limits, LimitKey::address, "10.0.0.2");
  CHECK(admitted(at_home) == 7);
  CHECK(admitted(away) == 7);
  const auto refused = away.admit(Clock::now(), false);
  REQUIRE(refused.has_value());
  CHECK(refused->message == "the address '10.0.0.2' has reached its limit of 7 operationsPerSecond; try again later");
  // What addresses refused was not taken from the user.
  ClientLimits elsewhere;
  elsewhere.enter(limits, LimitKey::user, "admin.ann");
  CHECK(admitted(elsewhere) == 86);
}

TEST_CASE("overrides go before, and the longest range counts", "[limits]") {
  Limits limits;
  LimitSettings settings = per_address({.connections = 1, .operations_per_second = 5});
  settings.overrides = {override_of(LimitKey::address, "10.0.0.0/8", {.connections = 2}),
                        override_of(LimitKey::address, "10.1.0.0/16",
                                    {.connections = LimitValues::unlimited, .operations_per_second = 9}),
                        override_of(LimitKey::user, "admin.ann", {.connections = 3})};
  limits.configure(settings);
  const auto most = [&](LimitKey key, std::string_view name) {
    int count = 0;
    std::vector<std::unique_ptr<ClientLimits>> clients;
    for (int i = 0; i < 10; ++i) {
      clients.push_back(std::make_unique<ClientLimits>());
      count += clients.back()->enter(limits, key, name) ? 0 : 1;
    }
    return count;
  };
  CHECK(most(LimitKey::address, "11.0.0.1") == 1);
  CHECK(most(LimitKey::address, "10.2.0.1") == 2);
  CHECK(most(LimitKey::address, "10.1.0.1") == 10);
  CHECK(most(LimitKey::user, "admin.ann") == 3);
  CHECK(most(LimitKey::user, "admin.bob") == 10);
  ClientLimits fast, plain;
  fast.enter(limits, LimitKey::address, "10.1.0.1");
  plain.enter(limits, LimitKey::address, "10.2.0.1");
  CHECK(admitted(fast) == 9);  // the burst follows the rate
  CHECK(admitted(plain) == 5);
}

TEST_CASE("a reload also holds for present clients", "[limits]") {
  Limits limits;
  ClientLimits a, b;
  a.enter(limits, LimitKey::user, "admin.shop");
  b.enter(limits, LimitKey::user, "admin.shop");
  CHECK_FALSE(limits.looks_at_operations());
  CHECK(admitted(a) == 1'000);
  LimitSettings settings;
  settings.per[static_cast<std::size_t>(LimitKey::user)] = {.connections = 2, .operations_per_second = 3};
  limits.configure(settings);
  ClientLimits c;
  CHECK(c.enter(limits, LimitKey::user, "admin.shop").has_value());
  CHECK(admitted(a) == 3);
  limits.configure({});
  CHECK_FALSE(c.enter(limits, LimitKey::user, "admin.shop"));
  CHECK(admitted(a) == 1'000);
}

TEST_CASE("cursors are counted until they are gone, though their connection is", "[limits]") {
  Limits limits;
  limits.configure(per_address({.cursors = 2}));
  std::vector<CursorCharge> none;
  CursorCharge first, second, third;
  {
    ClientLimits client;
    client.enter(limits, LimitKey::address, "10.0.0.1");
    for (CursorCharge* charge : {&first, &second, &third}) charge->assign(client.account());
    CHECK(may_open_cursor(client.account().get()));
    CHECK_FALSE(charge_cursor(first));
    CHECK_FALSE(charge_cursor(second));
    CHECK_FALSE(may_open_cursor(client.account().get()));
    CHECK(charge_cursor(third).has_value());
  }
  CHECK(limits.usage(LimitKey::address).tracked == 1);
  second.assign(nullptr);
  CHECK_FALSE(charge_cursor(third));
  first.assign(nullptr);
  third.assign(nullptr);
  CHECK(limits.usage(LimitKey::address).tracked == 0);
}

TEST_CASE("a client at its limit of bytes opens no cursor until it has read some", "[limits]") {
  Limits limits;
  limits.configure(per_address({.buffered_bytes = 100'000}));
  CHECK(limits.looks_at_bytes());
  ClientLimits client;
  client.enter(limits, LimitKey::address, "10.0.0.1");
  CursorCharge charge;
  charge.assign(client.account());
  charge.take();
  charge.hold(99'999);
  CHECK_FALSE(client.admit(Clock::now(), true));
  {
    const HeldReply small(client, 100);
    CHECK_FALSE(client.admit(Clock::now(), true));
    const HeldReply large(client, 20'000);
    const auto refused = client.admit(Clock::now(), true);
    REQUIRE(refused.has_value());
    CHECK(refused->is(ErrorCode::ingress_request_rate_limit_exceeded));
    CHECK_FALSE(client.admit(Clock::now(), false));
    CHECK(client.account()->full_of_bytes() != nullptr);
  }
  CHECK_FALSE(client.admit(Clock::now(), true));
  charge.hold(0);
  CHECK(client.account()->full_of_bytes() == nullptr);
}

TEST_CASE("IPv6 addresses are counted by their first 64 bits", "[limits]") {
  const auto name = [](const char* text) { return Limits::address_name(IpAddress::parse(text).value()); };
  CHECK(name("10.0.0.1") == "10.0.0.1");
  CHECK(name("::ffff:10.0.0.1") == "10.0.0.1");
  CHECK(name("2001:db8:1:2:3:4:5:6") == "2001:db8:1:2::/64");
  CHECK(name("2001:db8:1:2::9") == name("2001:db8:1:2:3:4:5:6"));
}

TEST_CASE("threads that come and go leave nothing behind", "[limits]") {
  Limits limits(50);
  limits.configure(per_address({.connections = 3, .operations_per_second = 1'000'000}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&limits, t] {
      for (int i = 0; i < 2'000; ++i) {
        ClientLimits client;
        if (client.enter(limits, LimitKey::address, fmt::format("10.0.0.{}", (i * (t + 1)) % 7))) continue;
        CursorCharge charge;
        charge.assign(client.account());
        if (!charge_cursor(charge)) charge.hold(1'000);
        client.admit(Clock::now(), true);
        if (i % 100 == 0) limits.configure(per_address({.connections = 2 + i % 3, .operations_per_second = 1'000'000}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  test::advance_time(1h);
  for (int i = 0; i < 20; ++i) {
    ClientLimits client;
    client.enter(limits, LimitKey::address, "10.9.9.9");
  }
  CHECK(limits.usage(LimitKey::address).tracked == 0);
}

}  // namespace
}  // namespace spillway::exec
