// The resources of a command. One Context per worker; it lives as long as the worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "proxy/base/loop.h"
#include "proxy/base/pump.h"
#include "proxy/base/splice.h"
#include "proxy/base/tls_context.h"
#include "proxy/exec/core/routes.h"
#include "proxy/exec/core/services.h"
#include "proxy/exec/core/stalled_clients.h"
#include "proxy/exec/counters/command_times.h"
#include "proxy/exec/counters/document_sizes.h"
#include "proxy/exec/counters/inside_times.h"
#include "proxy/exec/counters/splice_choice.h"
#include "proxy/shard/gateway.h"
#include "proxy/shard/interrupt.h"

// SPILLWAY_CO_TRY() of what a task brings, whatever the call is given: the task has a name (base/task.h).
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage)
#define SPILLWAY_AWAIT(name, ...) \
  auto name##_task = __VA_ARGS__; \
  SPILLWAY_CO_TRY(name, co_await name##_task)

namespace spillway::exec {

struct Client;  // client.h

struct Context {
  Loop& loop;
  Pump& pump;
  shard::Gateway& gateway;
  const Services shared;
  std::size_t worker = 0;
  absl::flat_hash_set<Client*> clients;  // connected to this worker; its own thread only
  TaskGroup background{};                // ends before the worker does, without a waiter: kills of shard cursors
  DocumentSizes document_sizes{};
  DocumentSizes output_sizes{};          // the same of projections' and pipelines' output (expect_output())
  StalledClients stalled_clients{};
  SplicePipes pipes{};
  SpliceChoice splice_choice{};
  shard::Interrupt read_ahead{};         // ends fetches ahead of clients' requests: for the shutdown
  std::unique_ptr<CommandTimes> command_times = std::make_unique<CommandTimes>();
  std::unique_ptr<InsideTimes> inside_times = std::make_unique<InsideTimes>();
  absl::flat_hash_set<std::uint64_t> accepted_stages{};  // that aggregate.cpp asked a shard about; own thread only

  StaticRouter static_router{shared.routing};
  // The source of Request::routes; another one in a cluster.
  Router* router = &static_router;
  bool in_cluster() const noexcept { return router != &static_router; }
  // Do all shards have one clock? A cluster's have, and the only shard of a static table.
  bool has_cluster_time() const noexcept { return in_cluster() || static_router.table()->shards().size() == 1; }
  // For clients' connections; null: none. A reload replaces it, on the worker's thread.
  TlsContext::Ptr tls{};
};

}  // namespace spillway::exec
