#include "proxy/server/parameters.h"

#include "proxy/base/ip_address.h"
#include "proxy/exec/failed_logins.h"
#include "proxy/exec/rate_limiter.h"

namespace spillway::server {

void take_parameters(exec::Parameters& into, const Config* before, const Config& config) {
  const auto take = [&](auto& parameter, auto value_of) {
    if (before == nullptr || value_of(*before) != value_of(config)) parameter = value_of(config);
  };
  take(into.cursor_timeout_ms, [](const Config& c) { return c.parameters.cursor_timeout_ms; });
  take(into.cursor_monitor_frequency_secs,
       [](const Config& c) { return c.parameters.cursor_monitor_seconds; });
  take(into.timeout_of_session_cursors,
       [](const Config& c) { return c.parameters.time_out_session_cursors; });
  take(into.orphan_grace_ms, [](const Config& c) { return c.parameters.orphan_grace_ms; });
  take(into.user_refresh_secs, [](const Config& c) { return c.parameters.user_refresh_seconds; });
  take(into.read_ahead, [](const Config& c) { return c.parameters.read_ahead; });
  take(into.splice_replies, [](const Config& c) { return c.parameters.splice_replies; });
  take(into.shutdown_timeout_ms, [](const Config& c) { return c.parameters.shutdown_timeout_ms; });
  take(into.spill_idle_ms, [](const Config& c) { return c.spill.idle_ms; });
  take(into.evict_idle_ms, [](const Config& c) { return c.memory.evict_idle_ms; });
  take(into.slow_ms, [](const Config& c) { return c.slow_ms; });
  take(into.idle_client_ms, [](const Config& c) { return c.net.idle_client_ms; });
  take(into.handshake_ms, [](const Config& c) { return c.net.handshake_ms; });
  take(into.slow_sender_ms, [](const Config& c) { return c.net.slow_sender_ms; });
  take(into.log_level, [](const Config& c) { return c.system_log.verbosity; });
}

namespace {

void take_rate(exec::RateLimiter& into, const RateConfig* before, const RateConfig& config) {
  const auto take = [&](auto& parameter, auto value_of) {
    if (before == nullptr || value_of(*before) != value_of(config)) parameter = value_of(config);
  };
  take(into.enabled, [](const RateConfig& c) { return c.enabled; });
  take(into.per_second, [](const RateConfig& c) { return c.per_second; });
  take(into.burst_seconds, [](const RateConfig& c) { return c.burst_seconds; });
  take(into.queue_max, [](const RateConfig& c) { return c.queue_max; });
  if (before == nullptr || before->exempt != config.exempt) into.exempt.set(parse_address_ranges(config.exempt).ranges);
}

}  // namespace

void take_limits(exec::Shared& into, const Config* before, const Config& config) {
  take_rate(*into.connection_rate, before ? &before->parameters.connection_rate : nullptr, config.parameters.connection_rate);
  take_rate(*into.request_rate, before ? &before->parameters.request_rate : nullptr, config.parameters.request_rate);
  into.failed_logins->allowed = config.failed_logins.allowed;
  into.failed_logins->wait_max_ms = config.failed_logins.wait_max_ms;
  if (before == nullptr || !(before->limits == config.limits)) into.limits.configure(config.limits);
}

}  // namespace spillway::server
