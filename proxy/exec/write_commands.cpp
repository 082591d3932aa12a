#include <fmt/format.h>

#include "proxy/exec/command_table.h"
#include "proxy/exec/forward.h"
#include "proxy/exec/transactions.h"

namespace spillway::exec {

namespace {

Task<Result<Response>> forward_write(Context& context, const Request& request, catalog::ShardIndex shard) {
  const catalog::ShardSet targets{shard};
  auto checking = check_transaction(context, request, targets);
  auto checked = co_await checking;
  if (checked.has_error()) co_return checked.error();
  BsonDoc scratch;
  const shard::Command command = forward_command(request, scratch);
  auto call = context.gateway.call(shard, command, write_options(context, request));
  auto reply = co_await call;
  if (reply.has_error()) co_return label_failure(request, reply.error());
  co_return with_recovery_token(context, request, passthrough(*std::move(reply)));
}

Task<Result<Response>> run_write(Context& context, Client&, const Request& request) {
  auto forwarding = forward_write(context, request, context.routing().primary_shard(request.db));
  co_return co_await forwarding;
}

}  // namespace

std::span<const CommandSpec> write_commands() {
  static constexpr CommandSpec specs[] = {
      {.name = "insert", .handler = run_write, .in_transaction = true, .help = "insert documents"},
      {.name = "update", .handler = run_write, .in_transaction = true, .help = "update documents"},
      {.name = "delete", .handler = run_write, .in_transaction = true, .help = "delete documents"},
      {.name = "findAndModify", .handler = run_write, .in_transaction = true, .help = "find and modify a document"},
      {.name = "findandmodify", .handler = run_write, .in_transaction = true, .help = "find and modify a document"},
  };
  return specs;
}

}  // namespace spillway::exec
