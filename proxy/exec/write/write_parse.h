// insert, update and delete commands, parsed into views over the client's message.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "allocator/small_blocks.h"
#include "cursor/bson_view.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

enum class WriteKind : std::uint8_t { insert, update, remove };

// Views into the request.
struct WriteCommand {
  WriteKind kind = WriteKind::insert;
  std::string_view collection;
  std::string_view list_name;  // "documents", "updates" or "deletes"
  bool ordered = true;
  bool retryable = false;  // statement ids are sent along
  bool numbered = false;   // retryable, or of a transaction
  bool measurements = false;  // they are a time series', and the collection is that of its buckets
  bool whole_keys = false;  // of new documents that lack a field of the shard key, none is sent
  RecycledVector<DocView> ops;
  bool contiguous = false;  // the operations stand back to back: they came as a document sequence
  std::vector<std::int32_t> stmt_ids;  // the client's own; empty: each operation's index

  std::int32_t stmt_id(std::size_t op) const noexcept {
    return stmt_ids.empty() ? static_cast<std::int32_t>(op) : stmt_ids[op];
  }
};

// The number of the command's operations; none of them is read. InvalidLength(16) for none and for too many.
Result<std::size_t> count_operations(const Request& request, std::string_view list_name);
// Parses a command in steps: there may be 100,000 operations all over a large message. Errors: InvalidNamespace(73),
// TypeMismatch(14), 40414, InvalidLength(16).
class WriteParser {
 public:
  // The request outlives it.
  WriteParser(const Request& request, WriteKind kind) : request_(request) { command_.kind = kind; }
  // Parses up to `operations` operations. True: that was all, and the command may be taken.
  Result<bool> step(std::size_t operations);
  WriteCommand take() && { return std::move(command_); }

 private:
  Result<void> begin();
  Result<void> finish();

  const Request& request_;
  WriteCommand command_;
  bool begun_ = false;
  std::size_t count_ = 0;
  wire::DocSequence::Iterator in_sequence_;
  DocIterator in_array_;
};

// Of `count` statements, the first with this id. BadValue(2): one is negative, or beyond an int.
Result<void> check_stmt_ids(std::int32_t first, std::size_t count);
std::string_view command_name(WriteKind kind) noexcept;
std::string_view list_name_of(WriteKind kind) noexcept;

enum class UpdateStyle : std::uint8_t { replacement, operators, pipeline };

// One entry of updates or deletes, or the query half of findAndModify.
struct Statement {
  WriteKind kind = WriteKind::update;
  DocView query;
  ValueView update;  // document or array; missing for a deletion
  UpdateStyle style = UpdateStyle::replacement;
  bool multi = false;
  bool upsert = false;
  bool returns_document = false;  // findAndModify
  bool simple_collation = true;  // also where only the collection has one
  bool of_measurements = false;  // as WriteCommand::measurements
  DocView sort;  // {}: none
  ValueView collation, hint;
};

// Errors: 40414 for a missing field, TypeMismatch(14), FailedToParse(9) for a limit other than 0
// and 1.
Result<Statement> parse_statement(DocView op, WriteKind kind, const catalog::CollectionRouting* routing = nullptr);
Result<Statement> parse_statement(const WriteCommand& command, std::size_t op,
                                  const catalog::CollectionRouting* routing);
UpdateStyle style_of(ValueView update) noexcept;

}  // namespace spillway::exec
