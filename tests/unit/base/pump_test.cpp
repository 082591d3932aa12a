#include "proxy/base/pump.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

namespace spillway {

namespace {

constexpr auto patience = std::chrono::seconds(20);

bool goes_on(Pump& pump) { return pump.turn().await_ready(); }

Task<void> take_turn(Pump* pump, char name, std::string* order) {
  co_await pump->turn();
  order->push_back(name);
}

}  // namespace

TEST_CASE("without a poll of sockets, every turn is waited for", "[pump]") {
  Loop loop;
  Pump pump(loop);
  CHECK_FALSE(goes_on(pump));
}

TEST_CASE("a transfer goes on at once for a while after sockets were polled", "[pump]") {
  Loop loop;
  Pump pump(loop);
  loop.note_poll(0);
  REQUIRE(goes_on(pump));
  const auto until = Clock::now() + patience;
  while (goes_on(pump) && Clock::now() < until) {
  }
  CHECK_FALSE(goes_on(pump));
  loop.note_poll(0);
  CHECK(goes_on(pump));
}

TEST_CASE("what was found by the last poll, or posted, comes before the next piece", "[pump]") {
  Loop loop;
  Pump pump(loop);
  loop.note_poll(2);
  loop.note_event_run();
  CHECK_FALSE(goes_on(pump));
  loop.note_event_run();
  CHECK(goes_on(pump));
  loop.post([] {});
  CHECK_FALSE(goes_on(pump));
  loop.io().poll();
  loop.note_poll(0);
  CHECK(goes_on(pump));
}

TEST_CASE("waiting turns are not overtaken", "[pump]") {
  Loop loop;
  Pump pump(loop);
  std::string order;
  loop.spawn(take_turn(&pump, 'a', &order));
  loop.spawn(take_turn(&pump, 'b', &order));
  loop.note_poll(0);
  CHECK_FALSE(goes_on(pump));
  loop.spawn(take_turn(&pump, 'c', &order));
  CHECK(order.empty());
  loop.io().poll();
  CHECK(order == "abc");
}

}  // namespace spillway
