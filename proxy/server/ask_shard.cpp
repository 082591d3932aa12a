#include "proxy/server/ask_shard.h"

#include <chrono>
#include <utility>

#include "proxy/shard/connection.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::server {

namespace {
// A shard that is slower counts as one that cannot be reached.
constexpr auto command_time_max = std::chrono::seconds(10);
}  // namespace

Task<Answer> ask(exec::Context& context, catalog::ShardIndex shard, DocView body) {
  shard::CallOptions options;
  options.deadline = Clock::now() + command_time_max;
  options.budget = &context.shared.reply_memory;
  auto call = context.gateway.call(shard, shard::Command::of_body(body), options);
  auto reply = co_await call;
  Answer answer;
  if (reply.has_error()) {
    answer.skip = Skip{reply.error().message, true};
    co_return answer;
  }
  answer.reply = *std::move(reply);
  if (!wire::reply_is_ok(answer.reply.body())) {
    answer.skip = Skip{wire::error_from_reply(answer.reply.body()).message};
  } else if (answer.reply.body().validate().has_error()) {
    answer.skip = Skip{"its reply is malformed"};
  }
  co_return answer;
}

Task<Found> find_one(exec::Context& context, catalog::ShardIndex shard, DocView find) {
  auto asking = ask(context, shard, find);
  const Answer answer = co_await asking;
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
