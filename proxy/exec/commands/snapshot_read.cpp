#include "proxy/exec/commands/snapshot_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "proxy/auth/logical_clock.h"
#include "proxy/catalog/versions.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/read/aggregate.h"

namespace spillway::exec {

namespace {

// SnapshotTooOld, SnapshotUnavailable, StaleChunkHistory, MigrationConflict
constexpr std::array<std::int32_t, 4> snapshot_errors = {239, 246, 250, 272};

Error invalid(std::string message) { return Error(ErrorCode::invalid_options, std::move(message)); }

// 0: the field is not there.
Result<std::uint64_t> time_in(DocView concern, std::string_view field) {
  const ValueView value = concern[field];
  if (!value.exists()) return std::uint64_t{0};
  const auto time = catalog::read_timestamp(value);
  if (!time) {
    return Error(ErrorCode::type_mismatch, fmt::format("\"{}\" had the wrong type. Expected timestamp, found {}", field,
                                                       bson_type_name(value.type)));
  }
  if (*time == 0) return invalid(fmt::format("readConcern.{} cannot be a null timestamp", field));
  return *time;
}

bool reads_at_no_snapshot(const Request& request) noexcept {
  return request.name == "aggregate" && (!request.body.first().is_string() || opens_change_stream(request.body));
}

}  // namespace

Result<SnapshotTime> SnapshotTime::of(const Context& context, const Request& request) {
  if (advertised_wire_version(context.gateway) < wire_version_of_5_0) {
    return invalid("readConcern level snapshot is only valid in transactions until all of the cluster is 5.0");
  }
  if (reads_at_no_snapshot(request)) {
    return invalid("an aggregation of no collection, and a change stream, cannot run with readConcern level snapshot");
  }
  const DocView concern = request.read_concern.as_document();
  SPILLWAY_TRY(at, time_in(concern, "atClusterTime"));
  SPILLWAY_TRY(after, time_in(concern, "afterClusterTime"));
  if (*at != 0 && *after != 0) return invalid("readConcern cannot have both atClusterTime and afterClusterTime");
  SnapshotTime time;
  time.client_chose_ = *at;
  time.not_before_ = *after;
  const ValueView pipeline = request.body["pipeline"];
  time.once_ = request.name == "aggregate" && pipeline.is_array() && ends_in_write(pipeline.as_document());
  return time;
}

void SnapshotTime::give(const Context& context, Request& request) {
  const std::uint64_t at =
      client_chose_ != 0 ? client_chose_ : std::max(context.shared.clock.now(), not_before_);
  BsonWriter out;
  out.begin_document("readConcern").append("level", "snapshot").append_timestamp("atClusterTime", at).end();
  concern_ = std::move(out).finish();
  request.at_cluster_time = at;
  request.read_concern = concern_.view().first();
  request.strips_fields = true;  // so that it is forwarded with this one
}

bool SnapshotTime::may_choose_again(std::int32_t failure) const noexcept {
  return client_chose_ == 0 && !once_ &&
         std::find(snapshot_errors.begin(), snapshot_errors.end(), failure) != snapshot_errors.end();
}

}  // namespace spillway::exec
