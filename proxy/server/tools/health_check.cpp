#include "proxy/server/tools/health_check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/budget.h"
#include "proxy/base/credentials_directory.h"
#include "proxy/base/loop.h"
#include "proxy/base/run_alone.h"
#include "proxy/base/tcp_transport.h"
#include "proxy/base/tls_context.h"
#include "proxy/server/tools/command_line.h"
#include "proxy/server/traces/http_client.h"
#include "proxy/shard/connect.h"
#include "proxy/shard/handshake.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::server {

namespace {

// For the whole check; and the part of it that is kept for finding out why there is no answer.
constexpr auto answer_time_max = std::chrono::seconds(5);
constexpr auto reason_time_max = std::chrono::seconds(1);
constexpr std::uint64_t reply_memory_bytes = 1ULL << 20;

// The server's certificate need not be valid as a client's: it is presented only where one is required.
Result<TlsContext::Ptr> client_tls(const TlsConfig& tls) {
  if (tls.mode != TlsMode::require) return TlsContext::Ptr();
  TlsClientSettings settings;
  settings.invalid_certificates = true;
  if (!tls.ca_file.empty() && !tls.allow_connections_without_certificates) {
    auto file = expand_credentials(tls.certificate_key_file);
    if (file.has_error()) return file.error();
    settings.files.certificate_key = *std::move(file);
    settings.files.key_password = tls.certificate_key_password;
  }
  return TlsContext::make_client(settings);
}

shard::HostAddress nearest(std::vector<std::string> addresses, std::uint16_t port) {
  for (std::string& address : addresses) {
    if (address == "0.0.0.0") address = "127.0.0.1";
    if (address == "::") address = "::1";
  }
  const auto loopback =
      std::find_if(addresses.begin(), addresses.end(),
                   [](const std::string& address) { return is_loopback(address); });
  return {loopback == addresses.end() ? addresses.front() : *loopback, port};
}

struct Greeting {
  std::optional<Error> error;  // none: it serves
  bool answered = false;       // the error came from the server
};

Task<Greeting> greet(const shard::PoolSettings& settings, shard::HostAddress address, TimePoint deadline) {
  auto connecting = shard::connect(settings, std::move(address), deadline);
  auto connected = co_await connecting;
  if (connected.has_error()) co_return Greeting{connected.error()};
  const std::unique_ptr<shard::Connection> connection = *std::move(connected);
  const BsonDoc hello = shard::first_hello(settings.introduction);
  const auto answered = co_await shard::exchange(*connection, hello.view(), settings.budgets(), deadline);
  connection->transport().close();
  if (answered.has_error()) co_return Greeting{answered.error()};
  const DocView reply = answered->body();
  if (!wire::reply_is_ok(reply)) co_return Greeting{wire::error_from_reply(reply), true};
  const ValueView kind = reply["msg"];
  if (kind.is_string() && kind.as_string() == "isdbgrid") co_return Greeting{};
  // A mongod may have the port: its default is the same.
  co_return Greeting{Error(ErrorCode::host_unreachable, "another server has this port, which is no router"), true};
}

// Only a limit on connections closes a connection that has sent nothing yet.
Task<bool> closes_unasked(Network& network, shard::HostAddress address, TimePoint deadline) {
  auto connected = co_await network.connect(address.host, address.port, deadline);
  if (connected.has_error()) co_return false;
  const std::unique_ptr<Transport> transport = *std::move(connected);
  ReadyWait readable(*transport, Transport::Direction::read, deadline);
  const bool ready = co_await readable;
  std::array<std::uint8_t, 1> byte{};
  const IoResult got = ready ? transport->try_read(byte) : IoResult{};
  transport->close();
  co_return ready && !got.ok() && !got.would_block();
}

// Whether the admin port's /healthz answers 200.
Task<bool> says_alive(Network& network, shard::HostAddress address, TimePoint deadline) {
  auto getting = http_get(network, std::move(address), "/healthz", deadline);
  const auto got = co_await getting;
  co_return !got.has_error() && got->status == 200;
}

// A process that refuses clients or lets them wait because of too many connections must not be restarted for that.
Task<Result<std::string>> find_out(const shard::PoolSettings& settings, const NetConfig& net) {
  const TimePoint end = Clock::now() + answer_time_max;
  const TimePoint hello_end = end - reason_time_max;
  const shard::HostAddress address = health_address(net);
  const Greeting greeted = co_await greet(settings, address, hello_end);
  if (!greeted.error) co_return std::string("serving");
  bool refused = greeted.answered && greeted.error->is(ErrorCode::ingress_request_rate_limit_exceeded);
  const bool silent = !greeted.answered && Clock::now() >= hello_end;
  if (!greeted.answered && !silent) {
    refused = co_await closes_unasked(settings.network, address, std::min(end, Clock::now() + reason_time_max));
  }
  if (!refused && !silent) co_return *greeted.error;
  const std::string state = refused ? "alive, but takes no more clients for now" : "alive, but lets clients wait";
  if (net.admin.port && *net.admin.port != 0) {
    auto asking = says_alive(settings.network, admin_address(net), end);
    const bool alive = co_await asking;
    if (alive) co_return state;
    co_return Error(greeted.error->code, greeted.error->message + "; nor does /healthz say that it is alive");
  }
  if (silent) co_return *greeted.error;
  co_return state;
}

}  // namespace

shard::HostAddress health_address(const NetConfig& net) { return nearest(listen_addresses(net), net.port); }
shard::HostAddress admin_address(const NetConfig& net) {
  return nearest(admin_addresses(net), net.admin.port.value_or(0));
}

Result<std::string> ask_health(const NetConfig& net) {
  if (net.port == 0) return Error(ErrorCode::bad_value, "net.port is 0: the port is not known");
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
  return run_alone(loop, find_out(settings, net));
}

int health_check(const LoadResult& loaded) {
  const auto print_errors = [&] {
    for (const std::string& error : loaded.errors) std::fprintf(stderr, "spillway: %s\n", error.c_str());
  };
  if (!loaded.net_known) {
    print_errors();
    std::fputs("spillway: the configuration names no port to ask\n", stderr);
    return exit_failed;
  }
  const Result<std::string> outcome = ask_health(loaded.config.net);
  if (!outcome.has_error()) {
    std::puts(outcome->c_str());
    return exit_ok;
  }
  print_errors();
  const shard::HostAddress address = health_address(loaded.config.net);
  std::fprintf(stderr, "spillway: %s is not serving: %s\n", address.text().c_str(),
               outcome.error().message.c_str());
  return exit_failed;
}

}  // namespace spillway::server
