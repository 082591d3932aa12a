// What serverStatus tells of limits and who met them, as parts of its sections.
#pragma once

#include "cursor/bson_writer.h"
#include "proxy/exec/context.h"

namespace spillway::exec {

// connections: rejected, limitExempt, queuedForEstablishment, establishmentRateLimit, and who was closed
// for silence.
void append_connection_limits(BsonWriter& out, const Shared& shared);
// queues: ingressSessionEstablishment.
void append_establishment_queue(BsonWriter& out, const Shared& shared);
// network: ingressRequestRateLimiter.
void append_request_rate(BsonWriter& out, const Shared& shared);
// security: failedLogins and auditLog.
void append_login_limits(BsonWriter& out, const Shared& shared);
// limits: for users, applications and addresses.
void append_limits(BsonWriter& out, const Shared& shared);

}  // namespace spillway::exec
