// Sections of serverStatus.memory.
#pragma once

#include "allocator/memory_layer.h"
#include "allocator/pressure.h"
#include "allocator/spill.h"
#include "cursor/bson_writer.h"
#include "cursor/registry.h"

namespace spillway::exec {

// memory.pressure: the level, its cause, and its sources.
void append_pressure(BsonWriter& out, const Pressure& pressure);
// Memory of idle cursors by namespace, application and user: the heaviest of each.
void append_cursor_memory(BsonWriter& out, const CursorRegistry& cursors);
// memory.spill: statistics of idle cursors' parked documents, errors included.
void append_spill(BsonWriter& out, const SpillStore* store);
// memory.malloc, .heaps, .allocator, .release: the heaps' memory, the heap that serves and why, and the memory given
// back.
void append_memory_account(BsonWriter& out, const MemoryAccount& account);
// One release: the bytes given back, and its duration.
void append_release(BsonWriter& out, const ReleaseRecord& record);

}  // namespace spillway::exec
