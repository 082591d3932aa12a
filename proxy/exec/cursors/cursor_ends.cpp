// Ends of cursors: frees their buffers and kills their shard cursors.
#include <compare>
#include <map>
#include <string_view>
#include <utility>

#include "allocator/memory_layer.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/shard_call.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/cursor_ops.h"

namespace spillway::exec {

namespace {

// Each id takes about 20 bytes of a command.
constexpr std::size_t kills_per_command_max = 1'000;
constexpr auto kill_time_max = std::chrono::seconds(10);

// One killCursors command names cursors of one collection on one host.
struct KillTarget {
  std::uint16_t shard = 0;
  std::uint16_t port = 0;
  HostName host;
  std::string database, collection;
  auto operator<=>(const KillTarget&) const = default;
};
using Kills = std::map<KillTarget, std::vector<std::int64_t>>;

Task<void> kill_on_host(Context* context, std::uint16_t shard, shard::HostAddress host, BsonDoc body,
                        TimePoint deadline) {
  shard::CallOptions options;
  options.budget = &context->shared.memory.replies;
  options.host = host;
  options.deadline = deadline;
  // A shard that did not get the command lets its cursor time out.
  auto ignored = co_await call_shard(*context, shard, RoutedBy::nothing(), body, options);
}

BsonDoc kill_command(const KillTarget& target, std::span<const std::int64_t> ids) {
  BsonWriter command;
  command.append("killCursors", std::string_view(target.collection));
  command.begin_array("cursors");
  for (const std::int64_t id : ids) command.append_item(id);
  command.end();
  command.append("$db", std::string_view(target.database));
  return std::move(command).finish();
}

void collect_kill(Kills& kills, const ClusterCursor& cursor, RemoteCursor& remote) {
  if (remote.id == 0) return;
  kills[{remote.shard, remote.port, remote.host, std::string(cursor.database()),
         std::string(cursor.remote_collection())}]
      .push_back(std::exchange(remote.id, 0));
}

void collect_kills(Kills& kills, ClusterCursor& cursor) {
  for (RemoteCursor& remote : cursor.remotes) collect_kill(kills, cursor, remote);
}

void start_kills(Context& context, TaskGroup& group, const Kills& kills,
                 TimePoint deadline = Clock::now() + kill_time_max) {
  for (const auto& [target, ids] : kills) {
    for (std::size_t at = 0; at < ids.size(); at += kills_per_command_max) {
      const auto some = std::span(ids).subspan(at, std::min(kills_per_command_max, ids.size() - at));
      group.start(kill_on_host(&context, target.shard, shard::HostAddress{target.host, target.port},
                               kill_command(target, some), deadline));
    }
  }
}

ReleaseReason release_reason(CursorEnd end) noexcept {
  switch (end) {
    case CursorEnd::finished:
    case CursorEnd::killed:
      break;
    case CursorEnd::expired:
      return ReleaseReason::expiry;
    case CursorEnd::orphaned:
      return ReleaseReason::orphan;
    case CursorEnd::evicted:
      return ReleaseReason::pressure;
  }
  return ReleaseReason::kill;
}

}  // namespace

void kill_remotes(Context& context, ClusterCursor& cursor) {
  if (std::exchange(cursor.ahead.begun, false)) context.shared.metrics.read_ahead_wasted.add();
  if (cursor.open_remotes() == 0) return;
  Kills kills;
  collect_kills(kills, cursor);
  start_kills(context, context.background, kills);
}

void kill_remote(Context& context, const ClusterCursor& cursor, RemoteCursor& remote) {
  Kills kills;
  collect_kill(kills, cursor, remote);
  start_kills(context, context.background, kills);
}

void kill_unread(Context& context, const ShardOutcome& outcome, std::string_view ns, std::int64_t id) {
  ClusterCursor unread;
  unread.ns = ns;
  RemoteCursor& remote = unread.remotes.emplace_back();
  remote.shard = outcome.shard;
  remote.host = outcome.reply.host.host;
  remote.port = outcome.reply.host.port;
  remote.id = id;
  kill_remotes(context, unread);
}

void end_cursor(Context& context, CursorPtr cursor, CursorEnd end) {
  if (!cursor) return;
  if (end == CursorEnd::killed) context.shared.metrics.cursors_killed.add();
  kill_remotes(context, *cursor);
  cursor.reset();
  if (end != CursorEnd::finished) context.shared.memory_layer->releaser().request(release_reason(end));
}

void end_cursors(Context& context, std::vector<CursorPtr> cursors, CursorEnd end) {
  if (cursors.empty()) return;
  if (end == CursorEnd::killed) context.shared.metrics.cursors_killed.add(cursors.size());
  Kills kills;
  for (const CursorPtr& cursor : cursors) {
    if (cursor->ahead.begun) context.shared.metrics.read_ahead_wasted.add();
    collect_kills(kills, *cursor);
  }
  cursors.clear();
  start_kills(context, context.background, kills);
  if (end != CursorEnd::finished) context.shared.memory_layer->releaser().request(release_reason(end));
}

Task<void> kill_and_wait(Context& context, std::vector<CursorPtr> cursors, TimePoint deadline) {
  TaskGroup group;
  Kills kills;
  for (const CursorPtr& cursor : cursors) collect_kills(kills, *cursor);
  cursors.clear();
  start_kills(context, group, kills, deadline);
  co_await group.wait();
}

}  // namespace spillway::exec
