// Sections of serverStatus.memory.
#pragma once

#include "cursor/bson_writer.h"
#include "proxy/exec/context.h"

namespace spillway::exec {

// memory.pressure: the level, why, and what it was read from.
void append_pressure(BsonWriter& out, const Pressure& pressure);

}  // namespace spillway::exec
