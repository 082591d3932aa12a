// configureFailPoint and waitForFailPoint: for tests.
#include <fmt/format.h>

#include <chrono>

#include "proxy/exec/core/client.h"
#include "proxy/exec/core/fail_command.h"

namespace spillway::exec {

namespace {

constexpr std::int32_t fail_point_set_failed = 266;
constexpr Duration met_looked_at_every = std::chrono::milliseconds(10);

Result<FailCommand*> named_point(Context& context, const Request& request) {
  const Element name = request.body.first();
  const std::string_view text = name.to_text();
  if (text == "failCommand") return &context.shared.fail_command;
  if (text == "failGetMoreAfterCursorCheckout") return &context.shared.fail_get_more;
  return Error(fail_point_set_failed, fmt::format("{} not found", text));
}

}  // namespace

Task<Result<Response>> configure_fail_point(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(point, named_point(context, request));
  SPILLWAY_CO_TRY(met, (*point)->configure(request.body));
  co_return ok_response(BsonWriter().append("count", *met));
}

// {waitForFailPoint, timesEntered, maxTimeMS}
Task<Result<Response>> wait_for_fail_point(Context& context, Client& client, const Request& request) {
  SPILLWAY_CO_TRY(point, named_point(context, request));
  const auto times = request.body["timesEntered"].to_int64();
  if (!times) co_return Error(ErrorCode::bad_value, "waitForFailPoint takes a number timesEntered");
  if (!request.max_time_ms) co_return Error(ErrorCode::bad_value, "waitForFailPoint takes a number maxTimeMS");
  const TimePoint deadline = request.arrived + std::chrono::milliseconds(*request.max_time_ms);
  while ((*point)->met() < *times) {
    SPILLWAY_AWAIT(paused, pause_operation(context, client, Clock::now() + met_looked_at_every, deadline));
  }
  BsonWriter reply;
  co_return ok_response(std::move(reply));
}

}  // namespace spillway::exec
