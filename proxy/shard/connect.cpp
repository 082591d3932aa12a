#include "proxy/shard/connect.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/base/tls_transport.h"

namespace spillway::shard {

Task<Result<std::unique_ptr<Connection>>> connect(const PoolSettings& settings, HostAddress address,
                                                  TimePoint deadline, TimePoint reached_by) {
  auto connected = co_await settings.network.connect(address.host, address.port, std::min(deadline, reached_by));
  if (connected.has_error()) co_return connected.error();
  std::unique_ptr<Transport> transport = *std::move(connected);
  if (settings.tls) {
    transport = make_tls_client(std::move(transport), settings.tls, address.host);
    const Result<void> established = co_await transport->establish(deadline);
    if (established.has_error()) {
      transport->close();
      const bool timed_out = established.error().is(ErrorCode::network_timeout);
      co_return Error(timed_out ? ErrorCode::network_timeout : ErrorCode::host_unreachable,
                      fmt::format("{}{} failed :: caused by :: {}", tls_failure, address.text(),
                                  established.error().message));
    }
  }
  co_return std::make_unique<Connection>(std::move(transport), address, settings.pump);
}

Task<bool> answers(const PoolSettings& settings, HostAddress address, TimePoint deadline) {
  auto connected = co_await connect(settings, address, deadline);
  if (connected.has_error()) co_return false;
  const std::unique_ptr<Connection> connection = *std::move(connected);
  const Introduction introduction{settings.introduction.application_name, {}};
  const auto introduced = co_await introduce(*connection, introduction, settings.budgets(), deadline);
  co_return introduced.has_value() ||
      !(introduced.error().is(ErrorCode::host_unreachable) || introduced.error().is(ErrorCode::network_timeout));
}

}  // namespace spillway::shard
