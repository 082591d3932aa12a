#include "proxy/exec/core/cluster_fields.h"

#include <algorithm>
#include <array>

#include "proxy/base/clock.h"
#include "proxy/cluster/config_client.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/shard_time.h"
#include "proxy/shard/stale_error.h"

namespace spillway::exec {

namespace {

DocView body_of(const shard::Command& command) {
  // Handlers put the body first, in a piece of its own or together with the sequences after it.
  const auto place = command.find_body();
  std::size_t offset = place ? place->offset : 0;
  for (std::size_t i = 0; place && i < command.section_count; ++i) {
    const iovec& piece = command.sections[i];
    if (offset < piece.iov_len) return DocView::trusted(static_cast<const std::uint8_t*>(piece.iov_base) + offset);
    offset -= piece.iov_len;
  }
  return {};
}

bool is_write(DocView body) {
  constexpr std::array<std::string_view, 5> writes = {"insert", "update", "delete", "findAndModify", "findandmodify"};
  return !body.empty() && std::find(writes.begin(), writes.end(), body.first().name) != writes.end();
}

void append_for_write(BsonWriter& out, DocView body, std::int32_t max_wire_version) {
  constexpr std::int32_t wire_version_of_4_4 = 9, wire_version_of_5_0 = 13;
  // A shard that made a collection by itself, while others drop it or make it, would make one that is not the
  // cluster's. It has the config servers make it, and answers 227.
  if (max_wire_version <= wire_version_of_4_4) out.append("allowImplicitCollectionCreation", false);
  // Shards apply no default write concern themselves. From 5.0 on a cluster's is the majority, unless an administrator
  // has set another one.
  if (max_wire_version >= wire_version_of_5_0 && !body["writeConcern"].exists() && !body["autocommit"].exists()) {
    out.begin_document("writeConcern").append("w", "majority").end();
  }
}

void append_versions(BsonWriter& out, const Context& context, const ShardCommand& command) {
  const RoutedBy& by = command.by;
  const auto form = catalog::version_form(context.gateway.capabilities(command.shard).max_wire_version);
  if (by.what() == RoutedBy::What::sharded) {
    catalog::append_shard_version(out, by.collection()->version_on(command.shard), form);
    return;
  }
  if (by.database() == nullptr || !by.database()->version) return;
  if (by.what() == RoutedBy::What::unsharded) {
    catalog::append_shard_version(out, catalog::ChunkVersion::unsharded(), form);
  }
  catalog::append_database_version(out, *by.database()->version);
}

}  // namespace

BsonDoc fields_for_shard(const Context& context, const ShardCommand& command, const shard::CallOptions& options) {
  BsonWriter out;
  const Shared& shared = context.shared;
  if (const auto time = shared.clock.for_server(shared.shards_trust_us)) auth::append_cluster_time(out, *time);
  // Neither the config servers nor cursors that are open look at versions.
  if (command.by.what() == RoutedBy::What::nothing || command.shard == cluster::config_shard) {
    return std::move(out).finish();
  }
  append_versions(out, context, command);
  const bool from_any_member =
      options.read_preference != nullptr && options.read_preference->mode != shard::ReadMode::primary;
  if (from_any_member && !body_of(command.command)["readConcern"].exists()) {
    out.begin_document("readConcern").append("level", "local").end();
  }
  if (const DocView body = body_of(command.command); is_write(body)) {
    append_for_write(out, body, context.gateway.capabilities(command.shard).max_wire_version);
  }
  return std::move(out).finish();
}

void note_times(Context& context, const shard::Reply& reply, shard::ShardTime* time) {
  if (const DocView told = reply.cluster_time(); !told.empty()) {
    const auto heard = catalog::read_timestamp(told["clusterTime"]);
    if (heard && *heard > context.shared.clock.now()) {
      if (const auto read = auth::read_cluster_time(reply.body()["$clusterTime"]); !read.has_error()) {
        context.shared.clock.hear(*read, wall_clock_ms() / 1000);
      }
    }
  }
  if (time == nullptr) return;
  if (const auto at = catalog::read_timestamp(reply.operation_time())) time->note_operation_time(*at);
}

void note_refusal(Context& context, const RoutedBy& by, DocView reply) {
  const shard::StaleError error = shard::classify_error(reply);
  if (error.kind != shard::StaleKind::none) context.shared.metrics.stale_refusals.add();
  switch (error.kind) {
    case shard::StaleKind::stale_config:
    case shard::StaleKind::cannot_implicitly_create: {
      std::string_view ns = error.ns;
      if (ns.empty() && by.collection() != nullptr) ns = by.collection()->ns;
      const catalog::Namespace name = catalog::split_namespace(ns);
      context.router->note_stale({name.db, name.collection});
      if (error.kind == shard::StaleKind::cannot_implicitly_create) context.router->note_stale({name.db, {}});
      break;
    }
    case shard::StaleKind::stale_database:
      context.router->note_stale({error.ns.empty() && by.database() != nullptr ? by.database()->name : error.ns, {}});
      break;
    case shard::StaleKind::cannot_refresh:
    case shard::StaleKind::view:
    case shard::StaleKind::none:
      break;
  }
}

}  // namespace spillway::exec
