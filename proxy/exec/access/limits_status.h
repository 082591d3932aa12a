// What serverStatus tells of limits and who met them, as parts of its sections.
#pragma once

#include "cursor/bson_writer.h"
#include "proxy/exec/core/context.h"

namespace spillway::exec {

// connections: rejected, and who was closed for silence.
void append_connection_limits(BsonWriter& out, const Shared& shared);
// security: failedLogins and auditLog.
void append_login_limits(BsonWriter& out, const Shared& shared);
// limits: for users and addresses.
void append_limits(BsonWriter& out, const Shared& shared);

}  // namespace spillway::exec
