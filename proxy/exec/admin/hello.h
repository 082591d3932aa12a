// The reply to hello and isMaster.
#pragma once

#include <optional>
#include <string_view>

#include "proxy/exec/core/context.h"
#include "proxy/wire/compression.h"
#include "proxy/wire/hello.h"

namespace spillway::exec {

// `negotiated`: what this connection compresses with, in order; empty: the field is left out.
// Logs in speculatively, where it is asked to.
BsonDoc hello_reply(Context& context, Client& client, const wire::HelloRequest& request,
                    const wire::CompressorList& negotiated);

// ShutdownInProgress(91) with remainingQuiesceTimeMillis and topologyVersion, while quiescing.
BsonDoc quiesce_reply(const Context& context);

// While quiescing, an error of the shutdown class carries topologyVersion, too: a driver then knows whose it is.
Error with_topology_version(const Context& context, Error error);

}  // namespace spillway::exec
