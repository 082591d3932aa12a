#include "proxy/shard/monitor.h"

#include <algorithm>
#include <chrono>

#include "proxy/shard/connect.h"

namespace spillway::shard {

namespace {
// While a host is down, an attempt to connect ends after this time: otherwise an attempt to a host that has just come
// back would wait in the kernel's growing pauses between two SYNs.
constexpr std::int64_t reconnect_attempt_ms = 1'000;
}  // namespace

Monitor::Monitor(const PoolSettings& settings, HostAddress address, MonitorSink& sink)
    : settings_(settings), address_(std::move(address)), sink_(sink) {}

Monitor::~Monitor() { SPILLWAY_CHECK(ended_); }

void Monitor::wake() {
  if (nap_ != nullptr) std::exchange(nap_, nullptr)->wake();
}

void Monitor::stop() {
  stopped_ = true;
  wake();
  if (connection_) connection_->fail(Error(ErrorCode::host_unreachable, "its monitor has ended"));
}

Task<void> Monitor::run() {
  ended_ = false;
  last_sign_ = Clock::now();
  while (!stopped_) {
    const TimePoint due = sink_.next_check(address_);
    if (due <= Clock::now()) {
      co_await check();
      continue;
    }
    Waiter nap(settings_.loop, due);
    nap_ = &nap;
    co_await nap;
    nap_ = nullptr;
  }
  connection_.reset();
  ended_ = true;
  sink_.monitor_ended();
}

Task<void> Monitor::check() {
  sink_.check_started(address_);
  const bool reused = connection_ != nullptr;
  auto answered = co_await ask();
  if (answered.has_error() && reused && !stopped_ &&
      !answered.error().is(ErrorCode::network_timeout)) {
    // Only the connection may have failed: a new one tells.
    answered = co_await ask();
  }
  if (stopped_) co_return;
  const TimePoint now = Clock::now();
  if (answered.has_value()) {
    down_ = false;
    last_sign_ = now;
    hello_ok_ = answered->server.hello_ok;
    sink_.check_succeeded(address_, std::move(answered->server), build_, answered->round_trip);
    co_return;
  }
  const bool timed_out = answered.error().is(ErrorCode::network_timeout);
  if (!timed_out) last_sign_ = now;
  const bool silent =
      timed_out && now - last_sign_ >= std::chrono::milliseconds(settings_.connect_timeout_ms);
  down_ = true;
  sink_.check_failed(address_, answered.error(), silent);
}

Task<Result<Monitor::Answer>> Monitor::ask() {
  if (!connection_) {
    co_return co_await connect();
  }
  const TimePoint start = Clock::now();
  const BsonDoc hello = later_hello(hello_ok_);
  auto exchanging = exchange(*connection_, hello.view(), settings_.budgets(),
                             start + std::chrono::milliseconds(settings_.connect_timeout_ms));
  auto reply = co_await exchanging;
  std::optional<Error> failed;
  if (reply.has_value()) {
    const TimePoint now = Clock::now();
    auto server = describe_server(reply->body(), now);
    if (server.has_value()) {
      server->hello_ok = server->hello_ok || hello_ok_;
      co_return Answer{*std::move(server), now - start};
    }
    failed = server.error();
  } else {
    failed = reply.error();
  }
  connection_.reset();
  co_return *std::move(failed);
}

Task<Result<Monitor::Answer>> Monitor::connect() {
  const TimePoint start = Clock::now();
  const std::int64_t attempt_ms = down_
                                      ? std::min(reconnect_attempt_ms, settings_.connect_timeout_ms)
                                      : settings_.connect_timeout_ms;
  auto connecting = shard::connect(settings_, address_, start + std::chrono::milliseconds(settings_.connect_timeout_ms),
                                   start + std::chrono::milliseconds(attempt_ms));
  auto connected = co_await connecting;
  if (connected.has_error()) {
    auto explaining = explain(connected.error());
    co_return co_await explaining;
  }
  speaks_plain_.reset();
  if (stopped_) co_return Error(ErrorCode::host_unreachable, "its monitor has ended");
  connection_ = *std::move(connected);
  // Without compressors: a hello is small, and compressed ones are not allowed.
  const Introduction introduction{settings_.introduction.application_name, {}};
  const TimePoint connected_at = Clock::now();
  auto introducing =
      introduce(*connection_, introduction, settings_.budgets(),
                connected_at + std::chrono::milliseconds(settings_.connect_timeout_ms));
  auto server = co_await introducing;
  if (server.has_error()) {
    connection_.reset();
    co_return server.error();
  }
  const Duration round_trip = Clock::now() - connected_at;
  auto build = co_await ask_build();
  if (build.has_error()) {
    connection_.reset();
    co_return build.error();
  }
  build_ = *build;
  co_return Answer{*std::move(server), round_trip};
}

// What a handshake with a server without TLS ends with depends on that server, and says little.
Task<Error> Monitor::explain(Error why) {
  if (settings_.tls == nullptr || !may_lack_tls(why)) {
    speaks_plain_.reset();
    co_return why;
  }
  if (!speaks_plain_ && !stopped_) {
    speaks_plain_ = co_await answers_plain();
  }
  if (speaks_plain_.value_or(false)) {
    why.message += "; it answers in plain text (in a cluster, net.tls.mode says how its servers are spoken to, too; "
                   "else tls= in the connection string)";
  }
  co_return why;
}

Task<bool> Monitor::answers_plain() {
  PoolSettings plain = settings_;
  plain.tls = nullptr;
  const TimePoint deadline =
      Clock::now() + std::chrono::milliseconds(std::min(reconnect_attempt_ms, settings_.connect_timeout_ms));
  co_return co_await answers(plain, address_, deadline);
}

// Once per connection: the next connection to this address may reach another server.
Task<Result<BuildInfo>> Monitor::ask_build() {
  const BsonDoc command = build_info_command();
  auto exchanging =
      exchange(*connection_, command.view(), settings_.budgets(),
               Clock::now() + std::chrono::milliseconds(settings_.connect_timeout_ms));
  auto reply = co_await exchanging;
  if (reply.has_error()) co_return reply.error();
  co_return describe_build(reply->body());
}

}  // namespace spillway::shard
