#include "proxy/exec/commands/slow_log.h"

#include <chrono>

#include "cursor/utf8.h"
#include "proxy/base/log.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/access/authentication.h"
#include "proxy/exec/admin/live_status.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/counters/slow_shapes.h"
#include "proxy/exec/streams/stream.h"

namespace spillway::exec {

namespace {

constexpr int slow_query_id = 51803;  // MongoDB's
constexpr std::size_t command_bytes_max = 4096, error_bytes_max = 4096;
constexpr std::size_t json_bytes_max = 256 * 1024;  // for a command of that size

// The command without the fields that a router adds; only its first field when it is large.
BsonDoc shown_command(const Request& request) {
  BsonWriter out;
  if (is_sensitive(request.body)) {
    out.append(request.name, "<hidden>").append("$db", request.db);
  } else if (request.body.size() > command_bytes_max) {
    const Element first = request.body.first();
    if (first.is_string()) {
      out.append(first.name, first.as_string());
    } else {
      out.append(first.name, std::int32_t{1});
    }
    out.append("truncated", static_cast<std::int64_t>(request.body.size()));
    out.append("$db", request.db);
  } else {
    out.append_elements(request.body, [](std::string_view name) { return name != "$clusterTime"; });
  }
  return std::move(out).finish();
}

}  // namespace

void log_if_slow(const Context& context, const Client& client, const Request& request, Duration taken,
                 const Response* response, const Error* error) {
  const auto slow_ms = context.shared.parameters.slow_ms.load(std::memory_order_relaxed);
  if (std::chrono::floor<std::chrono::milliseconds>(taken - Duration(1)).count() < slow_ms) return;
  SlowShape slow;
  slow.ns = request.ns();
  slow.shape = shape_of(request.body);
  slow.count = 1;
  slow.failed = error != nullptr || (response != nullptr && response->failed);
  slow.total_us = slow.max_us = std::chrono::duration_cast<std::chrono::microseconds>(taken).count();
  if (const shard::ShardTime* shards = request.shard_time) {
    slow.shards_us = std::chrono::duration_cast<std::chrono::microseconds>(shards->total()).count();
    slow.shard_calls = shards->calls();
  }
  if (response != nullptr) slow.reply_bytes = static_cast<std::int64_t>(reply_bytes(*response));
  context.shared.slow_shapes.add(std::move(slow));
  BsonWriter attributes;
  attributes.append("type", "command").append("ns", request.ns());
  if (!client.application_name.empty()) attributes.append("appName", client.application_name);
  attributes.append("command", shown_command(request));
  if (response != nullptr) attributes.append("reslen", static_cast<std::int64_t>(reply_bytes(*response)));
  if (error != nullptr) {
    attributes.append("ok", std::int32_t{0});
    attributes.append("errMsg", clean_text(error->message, error_bytes_max)).append("errCode", error->code);
    attributes.append("errName", error_code_name(error->code));
  }
  attributes.append("remote", client.peer).append("protocol", "op_msg");
  attributes.append("durationMillis", std::chrono::duration_cast<std::chrono::milliseconds>(taken).count());
  log::write_event(log::Level::info, "COMMAND", slow_query_id, "Slow query",
                   to_json(std::move(attributes).finish(), json_bytes_max));
}

}  // namespace spillway::exec
