#include "proxy/exec/commands/connection_end.h"

#include <algorithm>

#include "cursor/registry.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/tables/transaction_table.h"

namespace spillway::exec {

namespace {

constexpr std::string_view state_field = "transactions";

bool is_open(const TransactionTable& table, std::string_view lsid, std::int64_t txn_number) {
  const auto transaction = table.find(lsid, txn_number);
  return transaction && transaction->state == Transaction::State::active;
}

}  // namespace

void BegunTransactions::note(const TransactionTable& table, const Request& request) {
  if (numbers_.size() >= looked_at_next_) {
    absl::erase_if(numbers_, [&table](const auto& entry) {
      return !is_open(table, entry.first, entry.second);
    });
    looked_at_next_ = std::max<std::size_t>(64, 2 * numbers_.size());
  }
  numbers_[std::string(request.lsid)] = *request.txn_number;
}

void BegunTransactions::abort(Context& context) {
  TransactionTable& table = *context.shared.transactions;
  for (const auto& [lsid, txn_number] : numbers_) {
    if (!is_open(table, lsid, txn_number)) continue;  // a commit under way decides
    const auto ending = table.abort(lsid, txn_number, Clock::now());
    if (ending.has_error()) continue;
    context.background.start(abort_on_shards(context, {lsid, txn_number, ending->shards()}));
  }
  numbers_.clear();
}

void BegunTransactions::append_to(BsonWriter& state, const TransactionTable* table) const {
  state.begin_array(state_field);
  for (const auto& [lsid, txn_number] : numbers_) {
    if (table != nullptr && !is_open(*table, lsid, txn_number)) continue;
    state.begin_document_item().append("lsid", DocView::trusted(lsid.data())).append("number", txn_number).end();
  }
  state.end();
}

void BegunTransactions::take_from(DocView state) {
  for (const Element& entry : state[state_field].to_array()) {
    const ValueView lsid = entry.to_document()["lsid"];
    const auto number = entry.to_document()["number"].to_int64();
    if (!lsid.is_document() || !number) continue;
    numbers_[std::string(reinterpret_cast<const char*>(lsid.bytes.data()), lsid.bytes.size())] = *number;
  }
}

void end_with_connection(Context& context, std::int64_t connection_id, BegunTransactions& begun) {
  end_cursors(context, context.shared.cursors.kill_connection(connection_id), CursorEnd::orphaned);
  begun.abort(context);
}

}  // namespace spillway::exec
