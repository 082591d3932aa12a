// Sections of serverStatus.memory.
#pragma once

#include "cursor/bson_writer.h"
#include "proxy/exec/context.h"

namespace spillway::exec {

// memory.pressure: the level, why, and what it was read from.
void append_pressure(BsonWriter& out, const Pressure& pressure);
// memory.spill: what idle cursors' documents became, and what went wrong with it.
void append_spill(BsonWriter& out, const SpillStore* store);

}  // namespace spillway::exec
