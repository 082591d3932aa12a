// {shutdown: 1, timeoutSecs, force}: ends the process as SIGTERM does.
#include <fmt/format.h>

#include <chrono>

#include "proxy/base/log.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/life_cycle.h"

namespace spillway::exec {

namespace {

constexpr std::int64_t timeout_secs_max = 86'400;
constexpr auto look_interval = std::chrono::milliseconds(10);

bool is_local(std::string_view peer) noexcept { return peer.starts_with("127.") || peer.starts_with("[::1]"); }

Result<std::chrono::milliseconds> announce_time(const Context& context, ValueView timeout) {
  if (!timeout.exists()) return std::chrono::milliseconds(context.shared.parameters.shutdown_timeout_ms.load());
  if (!timeout.is_number()) {
    return Error(ErrorCode::type_mismatch, fmt::format("shutdown.timeoutSecs is a number, not {}",
                                                       bson_type_name(timeout.type)));
  }
  const auto seconds = timeout.to_int64();
  if (!seconds || *seconds < 0 || *seconds > timeout_secs_max) {
    return Error(ErrorCode::bad_value, fmt::format("shutdown.timeoutSecs: {} is not between 0 and {}",
                                                   to_json(timeout), timeout_secs_max));
  }
  return std::chrono::milliseconds(std::chrono::seconds(*seconds));
}

}  // namespace

// Only for local clients: such a client could send the signal, or nearly. The connection ends without an answer when
// the announcement is over.
Task<Result<Response>> shutdown_command(Context& context, Client& client, const Request& request) {
  // A client behind a load balancer may claim any address.
  if (!is_local(client.peer) || client.presence.load_balanced()) {
    co_return Error(ErrorCode::unauthorized, "shutdown must run from localhost when running db without auth");
  }
  SPILLWAY_CO_TRY(announce, announce_time(context, request.body["timeoutSecs"]));
  if (!context.shared.life.request_shutdown) {
    co_return Error(ErrorCode::illegal_operation, "this router cannot be shut down by a command");
  }
  log::info("connection {} from {} asks for a shutdown", client.connection_id, client.peer);
  context.shared.life.request_shutdown(*announce);
  client.busy.leave();  // this wait does not count as work
  while (!context.shared.life.stopping) co_await context.loop.sleep_for(look_interval);
  Response response;
  response.closes = true;
  co_return response;
}

}  // namespace spillway::exec
