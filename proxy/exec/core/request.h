// Request: one client command, parsed into views over the client's message.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cursor/cursor.h"
#include "proxy/base/clock.h"
#include "proxy/exec/core/routes.h"
#include "proxy/shard/interrupt.h"
#include "proxy/shard/read_preference.h"
#include "proxy/shard/shard_time.h"
#include "proxy/wire/op_msg.h"

namespace spillway::auth {
struct User;  // users.h
}

namespace spillway::exec {

// Views: valid while the connection holds the message's buffer: until the command's coroutine has ended.
struct Request {
  wire::OpMsg message;
  Bytes sections;          // the OP_MSG sections as they arrived, checksum cut off: for forwarding
  std::string_view name;   // the command's name: the first key of the body
  std::string_view db;     // $db
  bool has_db = false;
  DocView body;

  shard::ReadPreference read_preference;
  bool has_read_preference = false;
  std::optional<std::int64_t> max_time_ms;   // > 0
  TimePoint arrived{};
  TimePoint deadline = time_point_never;     // from max_time_ms, counted from `arrived`
  std::string_view lsid;                     // bytes of the lsid document; empty: none
  std::shared_ptr<const BsonDoc> owned_lsid;  // holds `lsid` if it is not the body's: forwarded instead of that
  std::string_view user;                     // the connection's user; its address without authentication
  const auth::User* asks = nullptr;          // named to a cluster's servers as the one asking; null: none
  std::optional<std::int64_t> txn_number;
  bool in_transaction = false;               // autocommit: false
  bool start_transaction = false;
  ValueView comment;
  ValueView trace_context;                   // $traceCtx, unchecked
  const Routes* routes = nullptr;            // set by run_command(), which holds it until its end
  shard::Interrupt* interrupt = nullptr;     // ends its waits for shards; null: no interrupt
  shard::ShardTime* shard_time = nullptr;    // records calls to shards; null: no record
  ValueView read_concern;
  // Of a snapshot read outside transactions: shards get {level: "snapshot", atClusterTime: <this>} as `read_concern`
  // instead of the body's. 0: none.
  std::uint64_t at_cluster_time = 0;
  ValueView cluster_time;                    // $clusterTime, unchecked
  ApiParameters api;
  bool help = false;                         // asks for the command's description
  // The body holds fields that must not reach a shard ($clusterTime, apiVersion, …): forwarding must rebuild it.
  bool strips_fields = false;
  // It was compressed: a complete reply is compressed, too.
  bool compressed = false;
  // Of a command on a view, which runs as an aggregation of the collection below it: the view that the client named.
  std::string_view view;
  // Of a write in a cluster that may have sharded time series: the collection that would hold its buckets. Of a file in
  // a bucket of GridFS: the collection of its chunks.
  std::string buckets{};
  // {writeConcern: {w: 0}}. Shards get w: 1: else they would not tell what they have not executed, and why.
  bool unacknowledged = false;
  bool lacks_w = false;  // it has a writeConcern without w
  // What shards get instead of that in a cluster; see complete_write_concern().
  std::shared_ptr<const BsonDoc> owned_write_concern{};
  bool sets_variables = false;  // it has `let`, or runtimeConstants, which routers give to shards
  bool encrypted = false;       // it has encryptionInformation (Queryable Encryption)
  bool of_many = false;         // one group of a bulkWrite of several operations, which have one txnNumber
  bool answers_router = false;  // its answer is needed whole, to be read here

  bool retryable_write() const noexcept { return txn_number.has_value() && !in_transaction; }
  DocView lsid_document() const noexcept {
    return lsid.empty() ? DocView() : DocView::trusted(lsid.data());
  }
  // Another body instead of the client's: the command is forwarded with it. `now` outlives the request.
  void replace_body(DocView now) noexcept;
  // What the command is about, as its row in the command table says. Names of users and the like, which other commands
  // have in the same place, are no collections. Empty: a database, or nothing.
  catalog::Namespace target() const;
  // The same as "db.collection"; of a command about no collection "db.$cmd.name".
  std::string ns() const;
};

// Does the request read the config database that the proxy makes of its own table? In a cluster it is the config
// servers'. REQUIRES routes.
inline bool reads_own_config(const Request& request) noexcept {
  return request.db == "config" && !request.routes->in_cluster();
}

// readConcern level snapshot outside transactions: several shards are told one time.
bool reads_snapshot(const Request& request) noexcept;
// readConcerns that need a time which several shards have in common: in a cluster afterClusterTime, and snapshot reads
// by find, aggregate and distinct. InvalidOptions(72).
Result<void> check_read_time(const Request& request, bool in_cluster);

// Reads the envelope of a command: name, $db, generic arguments.
// Errors: 40571 no $db, InvalidNamespace(73), IllegalOperation(20) for db local, TypeMismatch(14), InvalidOptions(72)
// for transaction fields that contradict each other, FailedToParse(9), APIVersionError(322), BadValue(2),
// 4886600 for apiStrict or apiDeprecationErrors without apiVersion.
Result<Request> parse_request(const wire::OpMsg& message, Bytes sections, TimePoint now);
// The same, into a request of which only `message` is set.
Result<void> read_request(Request& request, Bytes sections, TimePoint now);

// Is a top-level field one that a router strips from a client's command before forwarding?
bool is_stripped_from_request(std::string_view field) noexcept;
// … or strips from a shard's reply?
bool is_stripped_from_reply(std::string_view field) noexcept;
// Generic arguments: forwarded, but no part of the command itself (lsid, $db, comment, maxTimeMS, …).
bool is_generic_argument(std::string_view field) noexcept;
// One of either: clients may send it with any command.
bool is_argument_of_any_command(std::string_view field) noexcept;

}  // namespace spillway::exec
