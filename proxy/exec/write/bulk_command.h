// The command bulkWrite (8.0): writes of several collections in one command. It is executed as insert, update and
// delete commands, one group of its operations after the other, which any shard understands. Pure: no I/O. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/base/task.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/write/write_parse.h"

namespace spillway::exec {

// Views into the request.
struct BulkCommand {
  struct Namespace {
    std::string_view db, collection;
    DocView options;  // the entry of nsInfo
  };
  struct Operation {
    WriteKind kind = WriteKind::insert;
    std::uint32_t ns = 0;  // index into namespaces
    DocView fields;
  };
  bool ordered = true;
  bool errors_only = false;
  std::vector<Namespace> namespaces;
  std::vector<Operation> operations;
  std::vector<std::int32_t> stmt_ids;  // the client's own; empty: each operation's index
  std::int32_t first_stmt_id = 0;

  std::int32_t stmt_id(std::uint32_t op) const noexcept {
    return stmt_ids.empty() ? first_stmt_id + static_cast<std::int32_t>(op) : stmt_ids[op];
  }
};

// Reads the command in steps: there may be 100,000 operations.
class BulkParser {
 public:
  // The request outlives it.
  explicit BulkParser(const Request& request) : request_(request) {}
  // Reads up to `operations` operations. True: that was all, and the command may be taken. Errors: FailedToParse(9),
  // TypeMismatch(14), InvalidLength(16), 40414, 40415, BadValue(2), InvalidNamespace(73), IllegalOperation(20).
  Result<bool> step(std::size_t operations);
  BulkCommand take() && { return std::move(command_); }

 private:
  Result<void> begin();
  Result<void> add_namespace(DocView entry);
  Result<void> add_operation(DocView fields);
  Result<void> finish();

  const Request& request_;
  BulkCommand command_;
  bool begun_ = false;
  std::vector<DocView> left_;  // operations, last first
};

// Operations that one command executes.
struct BulkGroup {
  WriteKind kind = WriteKind::insert;
  std::uint32_t ns = 0;
  std::vector<std::uint32_t> operations;  // ascending
};
// Ordered: neighbours of one kind and collection. Unordered: all of them. If the client wants to hear of each
// operation, updates and deletes come one by one: their commands answer with sums.
Task<std::vector<BulkGroup>> bulk_groups(TimeSlice& slice, const BulkCommand& command);

// The group's command, without its operations. `begins`: it is the first one.
BsonDoc bulk_body(const Request& request, const BulkCommand& command, const BulkGroup& group, bool begins);
// An operation as insert, update and delete have it.
void append_bulk_operation(std::vector<std::uint8_t>& out, const BulkCommand::Operation& operation);

// What the groups' answers come to.
struct BulkTotals {
  std::int64_t errors = 0, inserted = 0, matched = 0, modified = 0, upserted = 0, deleted = 0;
  BsonDoc write_concern_error;  // {}: none

  BsonDoc elements() const;  // of the reply, after its cursor
};

// Of a result that has no error, at most, beside an upserted _id.
inline constexpr std::size_t bulk_result_bytes_max = 96;

// Takes a group's answer with ok: 1 apart.
class BulkAnswer {
 public:
  // The arguments outlive it.
  BulkAnswer(const BulkCommand& command, const BulkGroup& group, DocView reply, BulkTotals& totals);
  // Reads up to `errors` of the reply's errors. True: those were all, and the results may be taken.
  bool read(std::size_t errors);
  // The results that the client hears of, in the order of the group. False: there are no more.
  bool next(BsonDoc& result);
  bool failed() const noexcept { return failed_; }  // some operation has

 private:
  const BulkCommand& command_;
  const BulkGroup& group_;
  DocView reply_;
  BulkTotals& totals_;
  DocIterator errors_;
  std::vector<DocView> failures_;  // by position in the group; empty: none has failed
  std::size_t at_ = 0, end_ = 0;   // executed
  bool failed_ = false;
};

// Of an operation that was not executed for this error.
BsonDoc bulk_failure(std::uint32_t operation, WriteKind kind, DocView error);

}  // namespace spillway::exec
