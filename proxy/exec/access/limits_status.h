// The status of limits and their refusals, as parts of serverStatus sections.
#pragma once

#include "cursor/bson_writer.h"
#include "proxy/exec/core/services.h"

namespace spillway::exec {

// connections: rejected, and closed for silence.
void append_connection_limits(BsonWriter& out, const Services& shared);
// security: failedLogins and auditLog.
void append_login_limits(BsonWriter& out, const Services& shared);
// limits: for users and addresses.
void append_limits(BsonWriter& out, const Services& shared);

}  // namespace spillway::exec
