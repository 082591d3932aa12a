// killOp: of this router's operations, and of a shard's.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "proxy/exec/access/authorization.h"
#include "proxy/exec/admin/current_op.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/command.h"

namespace spillway::exec {

Task<Result<Response>> kill_op_command(Context& context, Client& client, const Request& request);

namespace {

Error not_own(const Request& request) {
  return Error(ErrorCode::unauthorized,
               fmt::format("not authorized on admin to execute command {}", to_json(request.body)));
}

}  // namespace

Result<KillTarget> parse_kill_op(DocView command) {
  const ValueView op = command["op"];
  if (!op.exists()) return Error(50759, "Did not provide \"op\" field");
  if (op.is_number()) {
    const auto number = op.to_int64();
    if (!number)
      return Error(26823, fmt::format("invalid op : {}: not a whole number", to_json(op)));
    return KillTarget{"", *number};
  }
  if (!op.is_string()) {
    return Error(
        50760,
        fmt::format("\"op\" field must be a number or of the form shardid:opid, not of type {}",
                    bson_type_name(op.type)));
  }
  const std::string_view text = op.as_string();
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) {
    return Error(
        28625,
        fmt::format("The op argument to killOp must be of the format shardid:opid but found \"{}\"",
                    text));
  }
  std::int32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return Error(ErrorCode::failed_to_parse,
                 fmt::format("Failed to parse the opid of \"{}\"", text));
  }
  return KillTarget{std::string(text.substr(0, colon)), number};
}

Task<Result<Response>> kill_op_command(Context& context, Client& client, const Request& request) {
  SPILLWAY_CO_TRY(target, parse_kill_op(request.body));
  BsonWriter reply;
  const bool any = may_on_cluster(context, client, auth::Action::kill_op);
  if (target->shard.empty()) {
    const std::function<bool(const Context&)> kill =
        [id = target->operation_id, any, user = client.user](const Context& worker) {
          for (Client* other : worker.clients) {
            if (other->running == nullptr || other->operation_id != id) continue;
            if (!any && other->user != user) return false;
            other->interrupt.request(Error(ErrorCode::interrupted, "operation was interrupted"));
            return true;
          }
          return false;
        };
    auto killing = ask_workers<bool>(context, kill);
    const std::vector<bool> killed = co_await killing;
    // Whether others' operations run is not for everybody.
    if (!any && std::find(killed.begin(), killed.end(), true) == killed.end()) co_return not_own(request);
    reply.append("info", "attempting to kill op");
    co_return ok_response(std::move(reply));
  }
  if (!any) co_return not_own(request);  // the shard does not know its user
  const auto shard = request.routes->shard_by_name(target->shard);
  if (!shard)
    co_return Error(ErrorCode::shard_not_found,
                    fmt::format("Shard {} does not exist", target->shard));
  BsonWriter command;
  command.append("killOp", std::int32_t{1});
  command.append("op", static_cast<std::int32_t>(target->operation_id)).append("$db", "admin");
  const BsonDoc body = std::move(command).finish();
  const shard::CallOptions options = write_options(context, request);
  const ShardOutcome outcome = co_await call_shard(context, *shard, RoutedBy::nothing(), body, options);
  // An operation that has ended meanwhile is no failure; an unreachable shard is one.
  if (!outcome.answered()) co_return *outcome.error;
  reply.append("shard", target->shard)
      .append("shardid", static_cast<std::int32_t>(target->operation_id));
  co_return ok_response(std::move(reply));
}

}  // namespace spillway::exec
