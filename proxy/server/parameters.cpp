#include "proxy/server/parameters.h"

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
  take(into.log_level, [](const Config& c) { return c.system_log.verbosity; });
}

}  // namespace spillway::server
