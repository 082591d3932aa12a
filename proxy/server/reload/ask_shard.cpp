#include "proxy/server/reload/ask_shard.h"

#include <chrono>
#include <utility>

#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/shard_call.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::server {

namespace {
// A slower shard counts as unreachable.
constexpr auto command_time_max = std::chrono::seconds(10);
}  // namespace

BsonDoc find_by_id(std::string_view collection, std::string_view db, std::string_view id) {
  BsonWriter find;
  find.append("find", collection);
  find.begin_document("filter").append("_id", id).end();
  find.append("limit", std::int64_t{1}).append("singleBatch", true);
  find.append("$db", db);
  return std::move(find).finish();
}

Task<Answer> ask(exec::Context& context, catalog::ShardIndex shard, DocView body) {
  shard::CallOptions options;
  options.deadline = Clock::now() + command_time_max;
  options.budget = &context.shared.memory.replies;
  auto call = exec::call_shard(context, {shard, exec::RoutedBy::nothing(), shard::Command::of_body(body)}, options);
  exec::ShardOutcome outcome = co_await call;
  Answer answer;
  if (outcome.error) answer.skip = Skip{outcome.error->message, !outcome.answered()};
  answer.reply = std::move(outcome.reply);
  if (!answer.skip && answer.reply.body().validate().has_error()) {
    answer.skip = Skip{"its reply is malformed"};
  }
  co_return answer;
}

Task<Found> find_one(exec::Context& context, catalog::ShardIndex shard, DocView find) {
  const Answer answer = co_await ask(context, shard, find);
  Found found;
  found.skip = answer.skip;
  if (found.skip) co_return found;
  const auto cursor = wire::parse_cursor_reply(answer.reply.body());
  if (cursor.has_error()) {
    found.skip = Skip{cursor.error().message};
    co_return found;
  }
  const Element first = cursor->batch.first();
  if (first.is_document()) found.document = BsonDoc(first.as_document());
  co_return found;
}

}  // namespace spillway::server
