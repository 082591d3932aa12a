// Client: one client connection as commands see it. Belongs to its worker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proxy/base/clock.h"
#include "proxy/exec/counters/connection_counts.h"
#include "proxy/exec/tables/limits.h"
#include "proxy/exec/tables/login.h"
#include "proxy/exec/tables/open_clients.h"
#include "proxy/shard/interrupt.h"

namespace spillway::exec {

struct Request;

struct Client {
  std::int64_t connection_id = 0;
  std::string peer;
  std::string local;
  std::string application_name;
  std::vector<std::uint8_t> metadata;  // hello's client document, BSON; empty: none
  bool internal = false;               // a server of a cluster, by its hello
  std::string user;                    // its user's id, "db.name"; empty: not logged in
  Login login;
  ClientPresence presence;
  ClientLimits limits;
  Counted busy;  // in ConnectionCounts::busy

  // The operation under way, for currentOp and killOp: read and written on the connection's worker only.
  const Request* running = nullptr;
  TimePoint running_since{};
  std::int64_t operation_id = 0;
  std::int64_t cursor_at_work = 0;  // of the getMore under way; 0: none
  bool merges = false;              // that getMore, of several shards: it may hold memory while it waits for more
  // For killOp and clients that left: reads end at once, writes before their next statement.
  shard::Interrupt interrupt;
};

}  // namespace spillway::exec
