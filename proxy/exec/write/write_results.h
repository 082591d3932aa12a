// Joins the shards' answers to the pieces of one write into one server's reply. Pure: no I/O. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "allocator/limits.h"
#include "cursor/bson_writer.h"
#include "proxy/exec/write/write_parse.h"

namespace spillway::exec {

// An error takes almost no memory: error texts, as far as a reply has them, are stored separately, one for all
// operations that failed with it.
class WriteResults {
  static constexpr std::uint32_t no_text = UINT32_MAX;
  struct WriteError {
    std::int32_t code = 0;
    std::uint32_t text = no_text;  // in texts_
  };
  // By operation, in the order of arrival.
  using Errors = absl::btree_multimap<std::uint32_t, WriteError>;

 public:
  // Once the errors' texts take this much, later ones carry their index and code only, as on a server.
  static constexpr std::size_t error_texts_bytes_max = limits::mib;
  // Later ones are not told: a write in many parts has the same of each.
  static constexpr std::size_t concern_errors_max = 100;
  // The charge for a write of `operations` operations: all of them may fail.
  static constexpr std::size_t bytes_for(std::size_t operations) noexcept {
    constexpr std::size_t text_bytes = 256;  // where there are few, of each
    return operations * 2 * sizeof(Errors::value_type) +
           std::min(operations * text_bytes, 2 * error_texts_bytes_max);
  }

  WriteResults(WriteKind kind, bool ordered, std::size_t operations)
      : kind_(kind), ordered_(ordered), operations_(operations) {}

  // A shard's reply with ok: 1 to a child that held the operations `ops`. Returns the child's n.
  std::int64_t add_reply(std::span<const std::uint32_t> ops, DocView reply, std::string_view shard);
  // The same in steps: a reply may have 100,000 entries. The arguments outlive it.
  class Reading {
   public:
    // `stale`: receives operations that the shard refused for the table that they came with, instead of the results.
    Reading(WriteResults& results, std::span<const std::uint32_t> ops, DocView reply, std::string_view shard,
            std::vector<std::uint32_t>* stale = nullptr);
    // Takes up to `entries` entries. True: that was all.
    bool step(std::size_t entries);

   private:
    std::optional<std::uint32_t> client_index(DocView entry) const;

    WriteResults& results_;
    std::span<const std::uint32_t> ops_;
    DocView reply_;
    std::string_view shard_;
    std::vector<std::uint32_t>* stale_;
    DocIterator upserted_, errors_;
    std::int64_t executed_most_;  // operations, after those refused as stale
  };
  // Operations failed as a whole: they could not be targeted, or their child got ok: 0.
  void add_error(std::uint32_t op, const Error& error) { add_errors({&op, 1}, error); }
  void add_errors(std::span<const std::uint32_t> ops, const Error& error);
  // The same in steps.
  class Failing {
   public:
    Failing(WriteResults& results, const Error& error);
    void add(std::span<const std::uint32_t> ops);

   private:
    WriteResults& results_;
    std::int32_t code_;
    std::uint32_t text_;
  };
  // A shard did not answer.
  void add_lost(std::span<const std::uint32_t> ops, const Error& error, std::string_view shard);
  static Error lost(const Error& error, std::string_view shard);

  bool has_errors() const noexcept { return !errors_.empty(); }
  bool has_error(std::uint32_t op) const { return errors_.contains(op); }
  // Something was written or failed: the reply cannot be a plain failure any more.
  bool has_effects() const noexcept { return n_ > 0 || !errors_.empty(); }

  // {n, nModified?, upserted?, writeErrors?, writeConcernError?, retriedStmtIds?, ok: 1}
  BsonDoc finish() const;
  // The same in steps. Do not add meanwhile.
  class Finishing {
   public:
    explicit Finishing(const WriteResults& results);
    // Writes up to `entries` entries. True: that was all, and the reply may be taken.
    bool step(std::size_t entries);
    BsonDoc take() && { return std::move(out_).finish(); }

   private:
    void append_head();
    void append_error();
    void append_tail();

    const WriteResults& results_;
    BsonWriter out_;
    bool begun_ = false;
    std::size_t text_bytes_ = 0;
    absl::btree_map<std::uint32_t, BsonDoc>::const_iterator upserted_;
    Errors::const_iterator error_;
  };

 private:
  struct ConcernError {
    BsonDoc document;
    std::string shard;
  };
  // The stored text's position, or no_text.
  std::uint32_t keep_text(BsonDoc text);
  void add(std::uint32_t op, WriteError error);
  // All errors of one operation.
  void append_error(BsonWriter& out, Errors::const_iterator first, Errors::const_iterator end,
                    bool brief) const;
  void append_concern_error(BsonWriter& out) const;

  WriteKind kind_;
  bool ordered_;
  std::size_t operations_;  // of the client's command
  std::int64_t n_ = 0, modified_ = 0;
  absl::btree_map<std::uint32_t, BsonDoc> upserted_;  // {_id}
  Errors errors_;
  std::vector<BsonDoc> texts_;  // an error's fields, without index
  std::size_t text_bytes_ = 0;
  std::vector<ConcernError> concern_errors_;
  std::vector<std::int32_t> retried_;
};

}  // namespace spillway::exec
