// Figures: what serverStatus and /metrics show. figures.cpp names each of them once, for both.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "allocator/memory_layer.h"
#include "allocator/pressure.h"
#include "allocator/spill.h"
#include "cursor/bson_writer.h"
#include "cursor/registry.h"
#include "proxy/exec/admin/metrics_text.h"
#include "proxy/exec/admin/status_facts.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"

namespace spillway::exec {

// What figures are read from, at (nearly) one moment. It takes the locks of its parts: each for a moment. Any thread,
// while the workers live.
struct Status {
  const Services& shared;
  const StatusFacts& facts;
  // Of serverStatus alone: the worker that answers, and whether the answer has the cells of times inside.
  const Context* worker = nullptr;
  bool histograms = false;
  const Metrics& all = shared.metrics;
  const CursorCounts cursors = shared.cursors.counts();
  const PressureState pressure = shared.pressure.state();
  const MemoryAccount memory = shared.memory_layer->account();
  const SpillStats spill = shared.spill ? shared.spill->stats() : SpillStats{};
  const std::array<MemoryQueueUsage, 2> queues{shared.memory.request_queue.usage(), shared.memory.work_queue.usage()};
  const Psi stall = pressure.last.psi.value_or(Psi{});
};

// The sections of serverStatus, but for those that the command leaves out. REQUIRES a worker.
void append_sections(BsonWriter& out, const Status& status, DocView command);

// Figures of serverStatus under paths of another document. REQUIRES that there are such figures.
struct Shown {
  std::string_view as, path;
};
void append_shown(BsonWriter& out, const Status& status, std::span<const Shown> shown);

// One release of memory: the bytes given back, and its duration.
void append_release(BsonWriter& out, const ReleaseRecord& record);

// The content of /metrics. Labels are shards, commands, code names, budgets and the like, never namespaces, clients or
// users.
void write_metrics(MetricsText& out, const Services& shared, const StatusFacts& facts);

}  // namespace spillway::exec
