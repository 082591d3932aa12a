#include "tests/unit/shard/shard_support.h"

namespace spillway::test {

namespace {

// `body` is what `command` points to, unless its caller keeps that.
Task<void> run_call(shard::Gateway* gateway, std::uint16_t shard, BsonDoc body, shard::Command command,
                    shard::CallOptions options, std::shared_ptr<Call> call) {
  const TimePoint start = Clock::now();
  if (command.section_count == 0) command = shard::Command::of_body(body.view());
  auto calling = gateway->call(shard, command, options);
  auto result = co_await calling;
  call->took = Clock::now() - start;
  call->result.emplace(std::move(result));
}

Task<void> shut_down(shard::Gateway* gateway, bool* done) {
  auto stopping = gateway->shut_down();
  co_await stopping;
  *done = true;
}

}  // namespace

World::~World() {
  disconnect();
  // Servers notice that their clients are gone.
  test::run_for(loop, std::chrono::seconds(30));
}

void World::connect(const std::string& uri, shard::GatewayOptions options, shard::SharedShards* shared) {
  options.shards = {{"shard0", uri}};
  shard::SharedShards alone;
  gateway = shard::make_gateway(loop, pump, network, budget, link_budget, options,
                                shared != nullptr ? *shared : alone);
  stop_ticking_ = false;
  ticking_ = true;
  loop.spawn(housekeeping());
}

Task<void> World::housekeeping() {
  while (!stop_ticking_) {
    gateway->tick(Clock::now());
    co_await loop.sleep_for(std::chrono::milliseconds(250));
  }
  ticking_ = false;
}

void World::disconnect() {
  if (!gateway) return;
  stop_ticking_ = true;
  bool done = false;
  loop.spawn(shut_down(gateway.get(), &done));
  const bool ended = test::run_until(
      loop, [&] { return done && !ticking_; }, std::chrono::minutes(5));
  SPILLWAY_CHECK(ended);
  gateway.reset();
}

std::shared_ptr<Call> World::start(std::string_view command, shard::CallOptions options, std::uint16_t shard) {
  auto call = std::make_shared<Call>();
  options.budget = &budget;
  loop.spawn(run_call(gateway.get(), shard, json(command), {}, options, call));
  return call;
}

std::shared_ptr<Call> World::start(const shard::Command& command, shard::CallOptions options, std::uint16_t shard) {
  auto call = std::make_shared<Call>();
  options.budget = &budget;
  loop.spawn(run_call(gateway.get(), shard, {}, command, options, call));
  return call;
}

std::shared_ptr<Call> World::call(std::string_view command, shard::CallOptions options,
                                  Duration limit) {
  auto started = start(command, options);
  test::run_until(
      loop, [&] { return started->done(); }, limit);
  return started;
}

void World::run(Duration time) { test::run_for(loop, time); }

bool World::run_until(const std::function<bool()>& done, Duration limit) {
  return test::run_until(loop, done, limit);
}

}  // namespace spillway::test
