// bulkWrite, as one insert, update or delete command for each group of its operations.
#include <fmt/format.h>

#include "proxy/base/memory_wait.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/access/command_rules.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/commands/run_in_cluster.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/stale.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/config_database.h"
#include "proxy/exec/write/bulk_command.h"
#include "proxy/exec/write/write_parse.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

constexpr std::size_t operations_per_turn = 256;

// A group's command. Its operations are a document sequence, as a client sends them.
struct GroupMessage {
  BsonDoc body;
  std::vector<std::uint8_t> section;
  Request request;
};

Task<void> fill(TimeSlice& slice, const BulkCommand& command, const BulkGroup& group, bool begins,
                const Request& request, GroupMessage& message) {
  message.body = bulk_body(request, command, group, begins);
  const std::string_view list = list_name_of(group.kind);
  std::vector<std::uint8_t>& bytes = message.section;
  bytes.assign(1, 1);
  bytes.resize(1 + sizeof(std::int32_t));
  bytes.insert(bytes.end(), list.begin(), list.end());
  bytes.push_back(0);
  const std::size_t head = bytes.size();
  for (const std::uint32_t operation : group.operations) {
    const std::size_t before = bytes.size();
    append_bulk_operation(bytes, command.operations[operation]);
    if (slice.is_over(bytes.size() - before)) co_await slice.next();
  }
  store_le(bytes.data() + 1, static_cast<std::int32_t>(bytes.size() - 1));

  Request& made = message.request = request;
  made.name = command_name(group.kind);
  made.db = command.namespaces[group.ns].db;
  made.replace_body(message.body);
  made.message.sequences.clear();
  made.message.sequences.push_back(
      {list, Bytes(bytes.data() + head, bytes.size() - head), group.operations.size()});
  made.answers_router = true;
  made.of_many = command.operations.size() > 1;
  made.unacknowledged = false;
  made.start_transaction = begins && request.start_transaction;
  if (!begins) made.read_concern = {};
}

Task<Result<Response>> run_group(Context& context, Client& client, GroupMessage& message) {
  const CommandSpec& spec = *command_named(message.request.name);
  return context.in_cluster() ? run_in_cluster(context, client, spec, message.request, std::nullopt)
                              : spec.handler(context, client, message.request);
}

// The reply to a group, or what has become of it.
BsonDoc reply_of(const Request& request, Result<Response> answer) {
  if (answer.has_error()) return error_document(label_failure(request, answer.error()));
  return answer->copy();
}

// Is a group's failure the whole command's answer? It is where the client can begin again, with what was executed known
// to the shards, and where nothing was.
bool is_of_all(const Request& request, const Error& failure, bool wrote) {
  return !wrote || request.in_transaction || has_label(failure, "RetryableWriteError");
}

// Where writes have no number, by which shards know them again, a client that tries again would write twice: it hears
// the same as when its connection breaks.
Error after_writes(const Request& request, Error error) {
  const bool short_of_memory =
      error.is(ErrorCode::ingress_request_rate_limit_exceeded) || error.is(ErrorCode::exceeded_memory_limit);
  if (!short_of_memory || request.in_transaction || request.retryable_write()) return error;
  return Error(ErrorCode::host_unreachable, "the results were lost, since " + error.message);
}

// What was written is not to be written again for a newer table.
Error without_repeat(Error failure) {
  if (!is_for_router(failure.code) && failure.code != key_not_found) return failure;
  Error error(ErrorCode::write_conflict, failure.message);
  error.labels.emplace_back("TransientTransactionError");
  return error;
}

Task<Result<BulkCommand>> parse_in_steps(TimeSlice& slice, const Request& request) {
  BulkParser parser(request);
  for (;;) {
    SPILLWAY_CO_TRY(all, parser.step(operations_per_turn));
    if (*all) co_return std::move(parser).take();
    if (slice.is_over(operations_per_turn * sizeof(BulkCommand::Operation))) co_await slice.next();
  }
}

// Executes the groups. Errors: those that are the whole command's.
Task<Result<void>> run_groups(Context& context, Client& client, const Request& request, const BulkCommand& command,
                              BulkTotals& totals, KeptDocuments& results) {
  TimeSlice slice(context.pump);
  bool wrote = false;
  const std::vector<BulkGroup> groups = co_await bulk_groups(slice, command);
  for (const BulkGroup& group : groups) {
    if (wrote) {
      if (const Error* why = client.interrupt.requested()) co_return *why;
      if (Clock::now() >= request.deadline) co_return time_limit_exceeded();
    }
    GroupMessage message;
    co_await fill(slice, command, group, !wrote, request, message);
    auto answer = co_await run_group(context, client, message);
    slice.renew();
    const BsonDoc reply = reply_of(request, std::move(answer));
    if (!wire::reply_is_ok(reply)) {
      Error failure = wire::error_from_reply(reply);
      if (is_of_all(request, failure, wrote)) co_return wrote ? without_repeat(std::move(failure)) : std::move(failure);
      const std::size_t failed = command.ordered ? 1 : group.operations.size();
      for (std::size_t i = 0; i < failed; ++i) {
        ++totals.errors;
        if (auto kept = results.add(bulk_failure(group.operations[i], group.kind, reply)); kept.has_error()) {
          co_return after_writes(request, std::move(kept.error()));
        }
        if (slice.is_over()) co_await slice.next();
      }
      if (command.ordered) break;
      continue;
    }
    wrote = true;
    BulkAnswer taken(command, group, reply, totals);
    while (!taken.read(operations_per_turn)) {
      if (slice.is_over(operations_per_turn * sizeof(DocView))) co_await slice.next();
    }
    for (BsonDoc result; taken.next(result);) {
      const std::size_t bytes = result.size();
      if (auto kept = results.add(std::move(result)); kept.has_error()) {
        co_return after_writes(request, std::move(kept.error()));
      }
      if (slice.is_over(bytes)) co_await slice.next();
    }
    if (taken.failed() && (command.ordered || request.in_transaction)) break;
  }
  co_return Result<void>();
}

// Groups are executed one after another. An operation has one result at most.
Task<void> put_in_order(TimeSlice& slice, KeptDocuments& results, std::size_t operations) {
  std::vector<BsonDoc> given = results.take_documents();
  std::vector<BsonDoc> placed(operations);
  for (BsonDoc& document : given) {
    placed.at(static_cast<std::size_t>(document.view()["idx"].as_int32())) = std::move(document);
    if (slice.is_over_short(sizeof(BsonDoc))) co_await slice.next();
  }
  for (BsonDoc& document : placed) {
    if (!document.view().empty()) results.add_paid(std::move(document));
    if (slice.is_over_short(sizeof(BsonDoc))) co_await slice.next();
  }
}

Task<Result<Response>> bulk_write(Context& context, Client& client, const Request& request) {
  const ValueView cursor = request.body["cursor"];
  if (cursor.exists() && !cursor.is_document()) {
    co_return wrong_type("bulkWrite.cursor", cursor, "object");
  }
  const ValueView batch_size = cursor.to_document()["batchSize"];
  const auto documents = batch_size.to_int64();
  if (batch_size.exists() && documents.value_or(-1) < 0) {
    co_return Error(ErrorCode::bad_value, "BSON field 'batchSize' value must be >= 0");
  }
  std::size_t bytes = request.body.size();
  for (const wire::DocSequence& sequence : request.message.sequences) bytes += sequence.documents.size();
  const auto counted = count_operations(request, "ops");
  // The operations once more, as a group has them, and the lists of them, which grow by doubling.
  constexpr std::size_t listed_bytes =
      2 * (sizeof(BulkCommand::Operation) + sizeof(BulkGroup) + sizeof(DocView) + sizeof(std::uint32_t)) +
      sizeof(BsonDoc);
  auto reserving = take_reservation(context, request, context.shared.memory.writes,
                                    bytes + (counted.has_error() ? 0 : *counted) * listed_bytes,
                                    "a bulkWrite");
  const auto reserved = co_await reserving;
  if (reserved.has_error()) co_return without_writes(reserved.error());
  TimeSlice slice(context.pump);
  SPILLWAY_CO_TRY(command, co_await parse_in_steps(slice, request));
  BulkTotals totals;
  KeptDocuments results(context.shared.memory.cursors);
  // Paid for before anything is written: the results of all operations, if none fails.
  const std::size_t told = command->errors_only ? 0 : command->operations.size();
  if (auto room = results.make_room(told, bulk_result_bytes_max); room.has_error()) {
    co_return without_writes(std::move(room.error()));
  }
  SPILLWAY_AWAIT(ran, run_groups(context, client, request, *command, totals, results));
  slice.renew();
  if (!command->ordered) {
    co_await put_in_order(slice, results, command->operations.size());
  }
  auto answering =
      answer_documents(context, client, request, std::move(results), "$cmd.bulkWrite", FirstBatch{.size = documents});
  auto answer = co_await answering;
  if (answer.has_error()) co_return after_writes(request, std::move(answer.error()));
  answer->append_elements(totals.elements());
  co_return answer;
}

}  // namespace

std::span<const CommandSpec> bulk_commands() {
  using enum Trait;
  static constexpr CommandSpec specs[] = {
      {"bulkWrite", "insert, update and delete documents of several collections", bulk_write, by_rule(may_bulk_write),
       admin_only | in_transaction | stable | writes},
  };
  return specs;
}

}  // namespace spillway::exec
