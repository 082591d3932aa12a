// Sections of serverStatus.memory.
#pragma once

#include "allocator/memory_layer.h"
#include "cursor/bson_writer.h"
#include "proxy/exec/core/context.h"

namespace spillway::exec {

// memory.pressure: the level, why, and what it was read from.
void append_pressure(BsonWriter& out, const Pressure& pressure);
// memory.spill: what idle cursors' documents became, and what went wrong with it.
// What idle cursors hold, by namespace, application and user: the heaviest of each.
void append_cursor_memory(BsonWriter& out, const CursorRegistry& cursors);
void append_spill(BsonWriter& out, const SpillStore* store);
// memory.malloc, .heaps, .allocator, .release: what the heaps hold, which serves and why, what was
// given back.
void append_memory_account(BsonWriter& out, const MemoryAccount& account);
// One release: what it gave back, and how long it took.
void append_release(BsonWriter& out, const ReleaseRecord& record);

}  // namespace spillway::exec
