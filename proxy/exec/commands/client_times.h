// $clusterTime and operationTime between clients and a router of shards with one clock.
#pragma once

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// The time that the client says it is. Errors: of LogicalClock::take().
Result<void> take_client_time(Context& context, const Client& client, const Request& request);

// Appends both times to the reply; a stream is told to end with them. operationTime: of the shards that were asked,
// else the cluster's.
void tell_times(Context& context, const Client& client, const Request& request, Response& response);

// What a hello ends with: the cluster's time as both. Empty: none is known that the client may be told.
BsonDoc times_for_hello(const Context& context, const Client& client);

}  // namespace spillway::exec
