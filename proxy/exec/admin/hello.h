// The reply to hello and isMaster.
#pragma once

#include "proxy/exec/core/context.h"
#include "proxy/wire/compression.h"
#include "proxy/wire/hello.h"

namespace spillway::exec {

// `negotiated`: this connection's compressors, in order; empty: the field is left out. Logs in speculatively, if the
// client asks for it.
BsonDoc hello_reply(Context& context, Client& client, const wire::HelloRequest& request,
                    const wire::CompressorList& negotiated);

// ShutdownInProgress(91) with remainingQuiesceTimeMillis and topologyVersion, while quiescing.
BsonDoc quiesce_reply(const Context& context);

// While quiescing, an error of the shutdown class carries topologyVersion, too: so a driver knows that the router
// sent it.
Error with_topology_version(const Context& context, Error error);

}  // namespace spillway::exec
