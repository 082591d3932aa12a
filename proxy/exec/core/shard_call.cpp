#include "proxy/exec/core/shard_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cursor/batch.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/tables/transaction_table.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/message_turns.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

shard::CallOptions with_places(const ShardCommand& command, shard::CallOptions options) {
  if (command.host) options.host = command.host;
  if (command.room != nullptr) options.room = command.room;
  return options;
}

bool is_same(const shard::Command& a, const shard::Command& b) noexcept {
  const auto pieces = [](const shard::Command& of) { return std::span(of.sections).first(of.section_count); };
  const auto same = [](const iovec& x, const iovec& y) { return x.iov_base == y.iov_base && x.iov_len == y.iov_len; };
  return std::equal(pieces(a).begin(), pieces(a).end(), pieces(b).begin(), pieces(b).end(), same);
}

Task<Result<shard::Reply>> name_no_shard() {
  co_return Error(ErrorCode::invalid_namespace, "Invalid namespace specified: the command does not name its database");
}

Task<Result<shard::Reply>> start(Context& context, const ShardCommand& command, const BsonDoc& added,
                                 shard::CallOptions options) {
  if (command.shard == catalog::no_shard) return name_no_shard();
  shard::Command with_added = command.command;
  if (!added.view().empty()) with_added.suffix = shard::elements_of(added.view());
  return context.gateway.call(command.shard, with_added, with_places(command, std::move(options)));
}

// As long as a call waits for a host.
constexpr auto version_wait_max = std::chrono::seconds(20);
constexpr auto version_look_first = std::chrono::milliseconds(5), version_look_last = std::chrono::milliseconds(100);

// `added`: a member of the call, which outlives this.
Task<Result<shard::Reply>> start_when_known(Context* context, ShardCommand command, Mentions mentions, BsonDoc* added,
                                            shard::CallOptions options) {
  const TimePoint given_up = std::min(options.deadline, Clock::now() + version_wait_max);
  Duration pause = version_look_first;
  while (waits_for_version(*context, command)) {
    if (const Error* why = shard::requested_of(options.interrupt)) co_return *why;
    if (context->shared.life.stopping) co_return Error(ErrorCode::host_unreachable, "the router is shutting down");
    if (Clock::now() >= given_up) {
      if (given_up == options.deadline) co_return time_limit_exceeded();
      co_return Error(ErrorCode::failed_to_satisfy_read_preference,
                      fmt::format("shard {}: none of its hosts has answered yet",
                                  context->gateway.states()[command.shard].name));
    }
    co_await context->loop.sleep_for(pause);
    pause = std::min<Duration>(2 * pause, version_look_last);
  }
  const DocView body = body_of(command.command);
  options.as_router = needs_router(*context, command, body, mentions);
  *added = fields_for_shard(*context, command, options, body, mentions, transaction_of(body));
  auto call = start(*context, command, *added, std::move(options));
  co_return co_await call;
}

constexpr std::size_t looked_through_at_once_bytes_max = 16 * limits::kib;

void call_malformed(Context& context, ShardOutcome& outcome) {
  outcome.reply = {};
  outcome.error = malformed_reply(context.gateway.states()[outcome.shard].name);
}

Task<void> call_into(Context* context, ShardCommand command, shard::CallOptions options, ShardOutcome* outcome) {
  *outcome = co_await call_shard(*context, command, options);
  if (!outcome->answered() || outcome->reply.streaming()) co_return;
  const DocView body = outcome->body();
  if (body.size() <= looked_through_at_once_bytes_max || body["cursor"].is_document()) co_return;
  auto looking = shard::is_valid_in_turns(context->pump, body);
  if (!co_await looking) call_malformed(*context, *outcome);
}

// A shard that has left the cluster gets no command: what it had is where the table says now.
void note_retired(Context& context, const RoutedBy& by, Error& error) {
  if (!error.is(ErrorCode::shard_not_found) || by.what() == RoutedBy::What::nothing) return;
  error.code = stale_config;
  if (by.database() != nullptr) context.router->note_refused(*by.database());
  if (by.collection() != nullptr) context.router->note_refused(*by.collection());
}

}  // namespace

ShardCall::Looked ShardCall::look_through(const Context& context, const ShardCommand& command,
                                          shard::CallOptions options) {
  if (!context.in_cluster()) return {{}, {}, std::move(options)};
  const DocView body = body_of(command.command);
  const Mentions mentions = mentions_of(context, command, body);
  options.as_router = needs_router(context, command, body, mentions);
  return {body, mentions, std::move(options)};
}

ShardCall::ShardCall(Context& context, const ShardCommand& command, shard::CallOptions options)
    : ShardCall(context, command, look_through(context, command, std::move(options))) {}

ShardCall::ShardCall(Context& context, const ShardCommand& command, Looked looked)
    : context_(context),
      shard_(command.shard),
      by_(command.by),
      time_(looked.options.time),
      transaction_(context.in_cluster() ? transaction_of(looked.body) : std::nullopt),
      added_(adds_fields(context) && !waits_for_version(context, command)
                 ? fields_for_shard(context, command, looked.options, looked.body, looked.mentions, transaction_)
                 : BsonDoc()),
      call_(waits_for_version(context, command)
                ? start_when_known(&context, command, looked.mentions, &added_, std::move(looked.options))
                : start(context, command, added_, std::move(looked.options))) {}

ShardOutcome ShardCall::await_resume() {
  ShardOutcome outcome;
  outcome.shard = shard_;
  auto reply = call_.await_resume();
  if (reply.has_error()) {
    outcome.error = std::move(reply.error());
    if (context_.in_cluster()) note_retired(context_, by_, *outcome.error);
    return outcome;
  }
  outcome.reply = *std::move(reply);
  if (outcome.reply.streaming()) {
    if (transaction_) note_participant(context_, *transaction_, shard_, DocView());
    return outcome;
  }
  if (context_.has_cluster_time()) note_times(context_, outcome.reply, time_);
  const DocView body = outcome.reply.body();
  const bool looks = outcome.reply.cursor_at == 0 && body.size() <= looked_through_at_once_bytes_max &&
                     !body["cursor"].is_document();
  if (looks && body.validate().has_error()) {
    call_malformed(context_, outcome);
  } else if (!outcome.reply.says_ok) {
    outcome.error = wire::error_from_reply(body);
    if (context_.in_cluster()) note_refusal(context_, by_, body);
    if (transaction_) note_failed_participant(context_, *transaction_, shard_, *outcome.error, body);
  } else if (transaction_) {
    note_participant(context_, *transaction_, shard_, body);
  }
  return outcome;
}

Task<ShardOutcomes> call_shards(Context& context, std::span<const ShardCommand> commands, shard::CallOptions options) {
  ShardOutcomes outcomes(commands.size());
  TaskGroup group;
  std::optional<Mentions> mentions;  // of the command before
  for (std::size_t i = 0; i < commands.size(); ++i) {
    ShardCommand command = commands[i];
    const bool again = i > 0 && commands[i - 1].by.what() == command.by.what() &&
                       is_same(commands[i - 1].command, command.command);
    if (again) command.mentions = mentions;
    if (context.in_cluster()) mentions = command.mentions = mentions_of(context, command, body_of(command.command));
    group.start(call_into(&context, command, options, &outcomes[i]));
  }
  co_await group.wait();
  co_return outcomes;
}

Task<ShardOutcomes> call_shards(Context& context, catalog::ShardSet shards, RoutedBy by, shard::Command command,
                                shard::CallOptions options) {
  RecycledVector<ShardCommand> commands;
  commands.reserve(shards.size());
  for (const catalog::ShardIndex shard : shards) commands.emplace_back(shard, by, command);
  co_return co_await call_shards(context, commands, options);
}

Task<Result<Response>> forward_to_shard(Context& context, const Request& request, catalog::ShardIndex shard,
                                        RoutedBy by, shard::CallOptions options) {
  SPILLWAY_CO_TRY(room, room_for_copy(context, request));
  BsonDoc scratch;
  auto call = call_shard(context, {shard, by, forward_command(request, scratch)}, options);
  ShardOutcome outcome = co_await call;
  co_return passed_on(std::move(outcome));
}

Result<Response> passed_on(ShardOutcome outcome) {
  if (!outcome.answered() || outcome.for_router()) return *std::move(outcome.error);
  return passthrough(std::move(outcome.reply));
}

shard::CallOptions read_options(Context& context, const Request& request) {
  shard::CallOptions options;
  options.read_preference = request.has_read_preference ? &request.read_preference : nullptr;
  options.retry = request.in_transaction ? shard::RetryPolicy::none : shard::RetryPolicy::idempotent;
  options.deadline = request.deadline;
  options.interrupt = request.interrupt;
  options.time = request.shard_time;
  options.user = request.asks;
  options.budget = &context.shared.memory.replies;
  return options;
}

shard::CallOptions write_options(Context& context, const Request& request) {
  shard::CallOptions options;
  options.retry = request.in_transaction        ? shard::RetryPolicy::none
                  : request.retryable_write() ? shard::RetryPolicy::idempotent
                                                : shard::RetryPolicy::not_idempotent;
  options.deadline = request.deadline;
  options.until_sent = request.interrupt;
  options.time = request.shard_time;
  options.user = request.asks;
  options.budget = &context.shared.memory.replies;
  return options;
}

}  // namespace spillway::exec
