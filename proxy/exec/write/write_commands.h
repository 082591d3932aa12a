// What the write commands share.
#pragma once

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/core/shard_call.h"

namespace spillway::exec {

// IllegalOperation(20): writes to db config.
Error config_is_read_only();

// Sends the client's own bytes to one shard and passes the reply through. Checks transaction fields
// first.
Task<Result<Response>> forward_write(Context& context, const Request& request,
                                     catalog::ShardIndex shard, RoutedBy by);
// Sends a command to one shard and passes the reply through; errors are labelled. No checks.
Task<Result<Response>> call_for_write(Context& context, const Request& request,
                                      ShardCommand command);

Task<Result<Response>> find_and_modify_command(Context& context, Client& client,
                                               const Request& request);

}  // namespace spillway::exec
