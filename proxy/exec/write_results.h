// What the shards answered to the pieces of one write, put together as one server's reply.
// Pure: no I/O. Not thread-safe. (mongos behaviour reference, section 4.4)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "cursor/bson_writer.h"
#include "proxy/exec/write_parse.h"

namespace spillway::exec {

class WriteResults {
 public:
  WriteResults(WriteKind kind, bool ordered) : kind_(kind), ordered_(ordered) {}

  // A shard's reply with ok: 1 to a child that held the operations `ops`. Returns the child's n.
  std::int64_t add_reply(std::span<const std::uint32_t> ops, DocView reply, std::string_view shard);
  // An operation failed as a whole: it could not be targeted, or its child was answered ok: 0.
  void add_error(std::uint32_t op, const Error& error);
  // No answer came from a shard.
  void add_lost(std::span<const std::uint32_t> ops, const Error& error, std::string_view shard);

  bool has_errors() const noexcept { return !errors_.empty(); }
  bool has_error(std::uint32_t op) const { return errors_.contains(op); }
  // Something was written or failed: the reply cannot be a plain failure any more.
  bool has_effects() const noexcept { return n_ > 0 || !errors_.empty(); }

  // {n, nModified?, upserted?, writeErrors?, writeConcernError?, retriedStmtIds?, ok: 1}
  BsonDoc finish() const;

 private:
  struct WriteError {
    std::int32_t code = 0;
    std::string message;
    BsonDoc fields;  // of the shard's error, without index
    std::string shard;
  };
  struct ConcernError {
    BsonDoc document;
    std::string shard;
  };
  void append_errors(BsonWriter& out) const;
  void append_error(BsonWriter& out, std::uint32_t op, const std::vector<WriteError>& errors,
                    bool brief) const;
  void append_concern_error(BsonWriter& out) const;

  WriteKind kind_;
  bool ordered_;
  std::int64_t n_ = 0, modified_ = 0;
  absl::btree_map<std::uint32_t, BsonDoc> upserted_;  // {_id}
  absl::btree_map<std::uint32_t, std::vector<WriteError>> errors_;
  std::vector<ConcernError> concern_errors_;
  std::vector<std::int32_t> retried_;
};

}  // namespace spillway::exec
