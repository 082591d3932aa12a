#include "proxy/server/health_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "allocator/budget.h"
#include "proxy/base/loop.h"
#include "proxy/base/tcp_transport.h"
#include "proxy/base/tls_context.h"
#include "proxy/server/command_line.h"
#include "proxy/shard/connect.h"
#include "proxy/shard/handshake.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::server {

namespace {

constexpr auto answer_time_max = std::chrono::seconds(5);
constexpr std::uint64_t reply_memory_bytes = 1ULL << 20;

Result<TlsContext::Ptr> client_tls(const TlsConfig& tls) {
  if (tls.mode != TlsMode::require) return TlsContext::Ptr();
  TlsClientSettings settings;
  settings.invalid_certificates = true;
  if (!tls.ca_file.empty()) {
    settings.files.certificate_key = tls.certificate_key_file;
    settings.files.key_password = tls.certificate_key_password;
  }
  return TlsContext::make_client(settings);
}

Task<Result<void>> ask(const shard::PoolSettings& settings, shard::HostAddress address) {
  const TimePoint deadline = Clock::now() + answer_time_max;
  auto connecting = shard::connect(settings, std::move(address), deadline);
  auto connected = co_await connecting;
  if (connected.has_error()) co_return connected.error();
  const std::unique_ptr<shard::Connection> connection = *std::move(connected);
  const BsonDoc hello = shard::first_hello(settings.introduction);
  auto exchanging = shard::exchange(*connection, hello.view(), settings.budgets(), deadline);
  const auto answered = co_await exchanging;
  connection->transport().close();
  if (answered.has_error()) co_return answered.error();
  if (!wire::reply_is_ok(answered->body())) co_return wire::error_from_reply(answered->body());
  co_return Result<void>();
}

Task<void> ask_and_stop(const shard::PoolSettings& settings, shard::HostAddress address,
                        std::optional<Result<void>>& outcome) {
  auto asking = ask(settings, std::move(address));
  outcome = co_await asking;
  settings.loop.stop();
}

}  // namespace

shard::HostAddress health_address(const NetConfig& net) {
  std::vector<std::string> addresses = listen_addresses(net);
  for (std::string& address : addresses) {
    if (address == "0.0.0.0") address = "127.0.0.1";
    if (address == "::") address = "::1";
  }
  const auto loopback =
      std::find_if(addresses.begin(), addresses.end(),
                   [](const std::string& address) { return is_loopback(address); });
  return {loopback == addresses.end() ? addresses.front() : *loopback, net.port};
}

Result<void> say_hello(const NetConfig& net) {
  if (net.port == 0) return Error(ErrorCode::bad_value, "net.port is 0: nobody knows the port");
  const auto tls = client_tls(net.tls);
  if (tls.has_error()) return tls.error();
  Loop loop;
  TcpNetwork network(loop, TcpOptions());
  MemoryBudget budget("healthcheck", reply_memory_bytes);
  const shard::PoolSettings settings{.loop = loop,
                                     .network = network,
                                     .budget = budget,
                                     .link_budget = budget,
                                     .introduction = {"spillway --healthcheck", {}},
                                     .limits = {},
                                     .tls = *tls};
  std::optional<Result<void>> outcome;
  loop.spawn(ask_and_stop(settings, health_address(net), outcome));
  if (!outcome) loop.run();
  return *std::move(outcome);
}

int health_check(const LoadResult& loaded) {
  const Result<void> outcome = say_hello(loaded.config.net);
  if (!outcome.has_error()) {
    std::puts("serving");
    return exit_ok;
  }
  for (const std::string& error : loaded.errors)
    std::fprintf(stderr, "spillway: %s\n", error.c_str());
  const shard::HostAddress address = health_address(loaded.config.net);
  std::fprintf(stderr, "spillway: %s is not serving: %s\n", address.text().c_str(),
               outcome.error().message.c_str());
  return exit_failed;
}

}  // namespace spillway::server
