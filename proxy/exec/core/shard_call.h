// Commands to shards. Every one goes through call_shard(): it adds what the shard must know of the routing table, and
// interprets the answer.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "allocator/small_blocks.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/core/stale.h"

namespace spillway::exec {

// The part of the routing table that a command relies on: if it has changed, the shard must not execute the command.
// A static table does not change under a command, and nothing is added.
class RoutedBy {
 public:
  enum class What : std::uint8_t { nothing, database, unsharded, sharded, multi_write, merging };

  // The owners of its chunks. `database`: the shard must be the primary one of that, too, for it reads or writes other
  // collections of it; null: any.
  static RoutedBy sharded(const catalog::CollectionRouting& routing,
                          const catalog::Database* database = nullptr) noexcept {
    return {What::sharded, &routing, database};
  }
  // All shards, those without chunks, too: a write to each document that matches, outside of a transaction. A shard
  // that checked a version would refuse in the middle of it, once a chunk has moved, with some documents written
  // (OpObserverShardingImpl of 4.2 to 6.0; later ones after each yield): it could not be sent again.
  static RoutedBy multi_write(const catalog::CollectionRouting& routing) noexcept {
    return {What::multi_write, &routing, nullptr};
  }
  // A collection that is not sharded, on the primary shard of its database. Null: databases do not move.
  static RoutedBy unsharded(const catalog::Database* database) noexcept { return {What::unsharded, nullptr, database}; }
  // A collection that may be sharded.
  static RoutedBy collection(const catalog::CollectionRouting* routing, const catalog::Database* database) noexcept {
    return routing != nullptr ? sharded(*routing) : unsharded(database);
  }
  // The primary shard of the database, for all of its collections.
  static RoutedBy database(const catalog::Database* database) noexcept { return {What::database, nullptr, database}; }
  // What other shards send: the shard merges their streams. `database`: it must be the primary shard of that; null:
  // any.
  static RoutedBy merging(const catalog::Database* database) noexcept { return {What::merging, nullptr, database}; }
  // Independent of the routing table: the command continues a cursor, ends something, or asks for the shard's own
  // state.
  static RoutedBy nothing() noexcept { return {}; }

  What what() const noexcept { return what_; }
  // Null unless what() is sharded or multi_write.
  const catalog::CollectionRouting* collection() const noexcept { return collection_; }
  // Of database, unsharded, merging, and perhaps sharded; null where databases do not move.
  const catalog::Database* database() const noexcept { return database_; }

 private:
  RoutedBy() = default;
  RoutedBy(What what, const catalog::CollectionRouting* collection, const catalog::Database* database) noexcept
      : what_(what), collection_(collection), database_(database) {}
  What what_ = What::nothing;
  const catalog::CollectionRouting* collection_ = nullptr;
  const catalog::Database* database_ = nullptr;
};

// What a command's bytes name somewhere, perhaps within a text.
struct Mentions {
  bool constants = false;   // $$NOW or $$CLUSTER_TIME
  bool namespaces = false;  // a stage that reads or writes another collection
};

// A command for one shard. Views: the caller keeps the bytes until the call has ended.
struct ShardCommand {
  ShardCommand(catalog::ShardIndex to, RoutedBy routed, shard::Command what) noexcept
      : shard(to), by(routed), command(what) {}
  catalog::ShardIndex shard;
  RoutedBy by;
  shard::Command command;
  std::optional<shard::HostAddress> host{};  // this one only
  shard::ReplyRoom* room = nullptr;          // for its reply (CallOptions::room)
  std::optional<Mentions> mentions{};        // none: not looked for yet
};

// The result. `error`: the command did not arrive, or no answer came, or the answer is damaged or says ok: 0 (with
// the shard's own code).
struct ShardOutcome {
  catalog::ShardIndex shard = 0;
  shard::Reply reply;  // set when the shard answered, ok: 0 or 1
  std::optional<Error> error;

  bool ok() const noexcept { return !error.has_value(); }
  bool answered() const noexcept { return reply.bytes.size() > 0; }
  // Refused for the table that the command came with, before any of it was executed.
  bool stale() const noexcept { return error && is_stale(error->code); }
  bool for_router() const noexcept { return error && is_for_router(error->code); }
  DocView body() const noexcept { return reply.body(); }  // REQUIRES answered(), and that it does not stream
};
using ShardOutcomes = RecycledVector<ShardOutcome>;

// The transaction that a command belongs to. Views into its body.
struct OfTransaction {
  std::string_view lsid;
  std::int64_t txn_number = 0;
};

// A call under way: name it, then await it.
class [[nodiscard]] ShardCall {
 public:
  ShardCall(Context& context, const ShardCommand& command, shard::CallOptions options);
  ShardCall(const ShardCall&) = delete;
  ShardCall& operator=(const ShardCall&) = delete;
  bool await_ready() const noexcept { return call_.await_ready(); }
  bool await_suspend(std::coroutine_handle<> parent) { return call_.await_suspend(parent); }
  ShardOutcome await_resume();

 private:
  // What is read in the command; nothing outside of a cluster.
  struct Looked {
    DocView body;
    Mentions mentions;
    shard::CallOptions options;
  };
  static Looked look_through(const Context& context, const ShardCommand& command, shard::CallOptions options);
  ShardCall(Context& context, const ShardCommand& command, Looked looked);

  Context& context_;
  catalog::ShardIndex shard_;
  RoutedBy by_;
  shard::ShardTime* time_;
  std::optional<OfTransaction> transaction_;  // in a cluster
  BsonDoc added_;  // what the command carries beside the caller's bytes; empty: nothing
  Task<Result<shard::Reply>> call_;
};

// A damaged answer of more than 16 KiB passes here (call_shards() finds it, step by step), and so do batches and the
// heads of streams: their documents are checked where they are read.
inline ShardCall call_shard(Context& context, const ShardCommand& command, shard::CallOptions options) {
  return {context, command, std::move(options)};
}
inline ShardCall call_shard(Context& context, catalog::ShardIndex shard, RoutedBy by, DocView body,
                            const shard::CallOptions& options) {
  return {context, {shard, by, shard::Command::of_body(body)}, options};
}
// In parallel; waits for all. Outcomes stand in the order of `commands`.
Task<ShardOutcomes> call_shards(Context& context, std::span<const ShardCommand> commands, shard::CallOptions options);
// The same command to several.
Task<ShardOutcomes> call_shards(Context& context, catalog::ShardSet shards, RoutedBy by, shard::Command command,
                                shard::CallOptions options);
// The client's command, and the shard's answer to it for the client.
Task<Result<Response>> forward_to_shard(Context& context, const Request& request, catalog::ShardIndex shard,
                                        RoutedBy by, shard::CallOptions options);
// The answer for the client, ok: 0 too; an error if there is none.
Result<Response> passed_on(ShardOutcome outcome);

// Options of a call for this request: read preference, deadline, what may be sent again.
shard::CallOptions read_options(Context& context, const Request& request);
shard::CallOptions write_options(Context& context, const Request& request);

}  // namespace spillway::exec
