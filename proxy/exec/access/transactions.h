// Transactions: what commands do about the table of them (tables/transaction_table.h), and messages to shards.
#pragma once

#include <chrono>

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/tables/transaction_table.h"

namespace spillway::exec {

// Called by every command that may be part of a transaction, once it knows its shards. It refuses a txnNumber for
// shards that keep no record of it: IllegalOperation(20). With a static table it also pins a transaction to its shard;
// a statement for a second shard aborts it on the first and is refused (263).
Task<Result<void>> check_transaction(Context& context, const Request& request,
                                     const catalog::ShardSet& targets);

// A txnNumber needs replica-set members, which remember the statements that they executed. No command is sent before
// this check.
Result<void> check_retryable(Context& context, const Request& request,
                             const catalog::ShardSet& targets);

// In a cluster: called for each statement before its handler. Shards then join as commands reach them: call_shard()
// adds startTransaction, readConcern and coordinator to the first command for each, and reads readOnly in the answers.
// Errors: TransactionTable::statement_in_cluster(), InvalidOptions(72) for a readConcern.
Result<void> begin_statement(Context& context, const Request& request);
// A snapshot's time is older than what is known of the names: its documents may lie elsewhere. (Outside transactions:
// older than the last move of a chunk, since no driver tries those reads again.)
// SnapshotUnavailable(246).
Result<void> check_snapshot(Context& context, const Request& request);
// The statement is to be sent again: aborts it on the shards that it has brought in. False: it must not be sent again.
// True outside transactions. `of_view`: the collection is a view.
Task<bool> restart_statement(Context& context, const Request& request, bool of_view);

// commitTransaction. REQUIRES in_transaction.
Task<Result<Response>> commit_transaction(Context& context, const Request& request);

inline constexpr auto abort_time_max = std::chrono::seconds(10);
// abortTransaction on its shards; the answers are ignored.
Task<void> abort_on_shards(Context& context, OpenTransaction open, TimePoint deadline = Clock::now() + abort_time_max);

// A command that ends with an error of the proxy's ends its transaction with it: the shards do not know of the error,
// and would commit the rest. If the error says that the command may be tried again unchanged, the transaction stays
// open, or not begun. In a cluster an answer that is a shard's error, or has write errors, ends the transaction, too:
// on all shards. Returns what is to be aborted.
std::optional<OpenTransaction> fail_transaction(Context& context, const Request& request,
                                                const Result<Response>& answer);

// The session's turn (session_turns.h), of transactions or of retryable writes. Errors: as SessionTurns::take().
Task<Result<SessionTurns::Turn>> take_turn(Context& context, const Request& request);

// Every reply inside a transaction that is no error ends with the recoveryToken, also if it has only read: by it
// another router can tell how the transaction's commit ended.
void tell_recovery_token(const Context& context, const Request& request, Response& response);
// Labels of a failure: TransientTransactionError inside a transaction, RetryableWriteError for a
// retryable write, when the shard could not be reached or this router shuts down. run_command() calls this for every
// failure of a command; other code need not. A command that began a transaction on its shard cannot be tried again by
// itself; the whole transaction can.
Error label_failure(const Request& request, Error error);
// APIMismatchError(347), unless the transaction was begun with the request's API parameters. REQUIRES a transaction's
// statement or commit.
Result<void> check_api_of_transaction(const Context& context, const Request& request);
bool has_label(const Error& error, std::string_view label) noexcept;

}  // namespace spillway::exec
