// The first exchange on a shard connection, and the monitor's: isMaster or hello over OP_MSG.
// With internalClient only where a shard must act as a router for us: such a connection has rules of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/server_description.h"
#include "proxy/wire/compression.h"

namespace spillway::shard {

struct Introduction {
  std::string application_name;
  std::vector<wire::Compressor> compressors;  // offered, best first; empty: none
  bool as_router = false;  // CallOptions::as_router
};

// `isMaster` with helloOk, metadata and compressors: every server since 3.6 understands it.
BsonDoc first_hello(const Introduction& introduction);
// Later ones: `hello` for a server that said helloOk.
BsonDoc later_hello(bool hello_ok);
BsonDoc build_info_command();

// The budgets of the reply. `own` is for these replies only, so that a shortage of memory never makes a host look
// lost; `common` pays if `own` has no room left, or a reply is unusually long.
struct LinkBudgets {
  MemoryBudget& own;
  MemoryBudget& common;
};

// Sends one command and reads its whole reply. The deadline's error here is NetworkTimeout(89).
Task<Result<Reply>> exchange(Connection& connection, DocView command, LinkBudgets budgets,
                             TimePoint deadline);

// Introduces the proxy, checks that the host may be a shard, agrees on a compressor.
Task<Result<ServerDescription>> introduce(Connection& connection, const Introduction& introduction,
                                          LinkBudgets budgets, TimePoint deadline);

}  // namespace spillway::shard
