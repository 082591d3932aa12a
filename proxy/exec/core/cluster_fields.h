// What is added to the commands that go to shards, and what is learned from their answers. Before a static table's only
// shard that is $clusterTime alone; before several, nothing.
#pragma once

#include "proxy/auth/logical_clock.h"
#include "proxy/exec/core/shard_call.h"

namespace spillway::exec {

inline constexpr std::int32_t wire_version_of_4_4 = 9, wire_version_of_5_0 = 13, wire_version_of_5_1 = 14,
                              wire_version_of_6_0 = 17, wire_version_of_7_0 = 21, wire_version_of_8_0 = 25;
// maxWireVersion of the config servers.
std::int32_t config_wire_version(const Context& context);
// Is the shard of this version or later, as far as is known? One that has not answered yet may be.
bool may_have_version(const Context& context, catalog::ShardIndex shard, std::int32_t wire);

// shardVersion and databaseVersion of what the command relies on, in the shard's form; readConcern where a member that
// is not the primary may answer: without one it looks at no version, and shows documents that have moved away.
// Also $clusterTime with every command, and $audit: the client's user. From 6.0 on mayBypassWriteBlocking, too: whether
// that user may write while setUserWriteBlockMode blocks users' writes.
// To a transaction's shards what makes them take part: see transaction_table.h. Each call counts as a contact.
// With writes, to 4.2, and to 4.4 outside transactions: that a shard must not make a collection by itself. Where the
// client names no readConcern or writeConcern, the cluster's default ones (from 4.4 on).
// `body`: the command's. `transaction`: transaction_of(body).
BsonDoc fields_for_shard(const Context& context, const ShardCommand& command, const shard::CallOptions& options,
                         DocView body, Mentions mentions, const std::optional<OfTransaction>& transaction);
bool adds_fields(const Context& context);
// May the shard have to ask other shards for this command? From 5.0 on it does so for its cluster's own servers only:
// for an ordinary client it takes its own part of a collection for the whole, and $mergeCursors ends the server.
// Source: mongod's mongod_process_interface_factory.cpp; tried on 6.0.
bool needs_router(const Context& context, const ShardCommand& command, DocView body, Mentions mentions);
// Gives the client's writeConcern the default's w if it has none, and the default's j if it says nothing of journals;
// one that is empty becomes the default. From 5.0 on, as a mongos does: shards would take w: 1.
void complete_write_concern(const Context& context, Request& request);
// What the fields depend on beside: the command's own `mentions`, or what is found now. 16 MB take a millisecond.
Mentions mentions_of(const Context& context, const ShardCommand& command, DocView body) noexcept;
// The body of a command to a shard.
DocView body_of(const shard::Command& command);

// Must the shard answer something before these fields can be made? Their form depends on its version, and a shard that
// has just been added, or was away when the router started, has not told it yet.
bool waits_for_version(const Context& context, const ShardCommand& command);

// By either name of the command.
bool is_map_reduce(std::string_view name) noexcept;

// What the shard says of the cluster's time. `time`: of the operation; may be null.
void note_times(Context& context, const shard::Reply& reply, shard::ShardTime* time);
// The document in a shard's $clusterTime; empty: it says none.
void hear_cluster_time(Context& context, DocView told);
// {operationTime, $clusterTime}, as many bytes each time. `operation_time`: of the shards that were asked; 0: the
// cluster's. Empty: no time is known yet that this client may be told.
BsonDoc times_for_client(const Context& context, auth::TimeTrust trust, std::uint64_t operation_time);

std::optional<OfTransaction> transaction_of(DocView body);
// A shard has executed a command of it. `reply`: its fields, with ok: 1; empty before the end of a reply that streams.
void note_participant(Context& context, const OfTransaction& transaction, catalog::ShardIndex shard, DocView reply);

// `reply` has ok: 0: the shards that the refusing one has brought in take part all the same.
void note_failed_participant(Context& context, const OfTransaction& transaction, catalog::ShardIndex shard,
                             const Error& error, DocView reply);

// `reply` has ok: 0. If the shard refused the command for its table, that is read again before it is used again.
void note_refusal(Context& context, const RoutedBy& by, DocView reply);

}  // namespace spillway::exec
