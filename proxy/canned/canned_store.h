// A canned shard's answers: commands in, replies out, without a socket.
//
// Holds the cursors and the document images of one shard. Shard `index` of `shard_count` holds the documents whose
// number is congruent to `index`, in ascending order of _id, which is also the only order that it can sort by.
// Collections whose name is no shape (documents.h) are empty; writes are acknowledged and dropped. Not thread-safe:
// it belongs to the shard's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proxy/canned/bson_bytes.h"
#include "proxy/canned/documents.h"

namespace spillway::bench {

struct StoreOptions {
  int index = 0;
  int shard_count = 1;
  int max_wire_version = 21;
  std::string set_name;  // empty: a standalone
  std::string address;   // host:port, for hello's `me`
  std::size_t pool_bytes = 2 << 20;
  std::size_t cursors_max = 1'000'000;
};

// Elements of a batch array still to be sent: `count` of them, the first at local position `local`.
struct ElementRange {
  DocumentImages* images = nullptr;
  std::int64_t local = 0;
  std::size_t count = 0;
};

// A reply document in three parts: `head`, the elements that `range` stands for, `tail`. A reply
// without a batch is all head.
struct StoreReply {
  std::string head;
  ElementRange range;
  std::string tail;

  std::uint64_t bytes() const noexcept {
    return head.size() + tail.size() +
           (range.images == nullptr ? 0 : range.images->elements_bytes(range.count));
  }
};

struct CommandInput {
  std::string_view body;               // the command's document
  std::size_t sequence_documents = 0;  // documents in the message's kind-1 sections
};

class CannedStore {
 public:
  explicit CannedStore(StoreOptions options);

  // The answer to one command; a bad one gets an error reply with MongoDB's code.
  StoreReply answer(const CommandInput& input);
  // The answer to the hello of a legacy OP_QUERY: a document as it is.
  std::string hello_document(std::string_view command_name);

  std::size_t open_cursors() const noexcept { return cursors_.size(); }
  std::uint64_t written_documents() const noexcept { return written_documents_; }

 private:
  // The result of a query: local positions [from, to).
  struct Selection {
    DocumentImages* images = nullptr;
    std::int64_t from = 0;
    std::int64_t to = 0;
  };
  struct Cursor {
    std::string ns;
    Selection rest;
  };
  struct Query {
    std::string_view collection;
    std::string_view filter;
    std::string_view sort;
    std::string_view projection;
    std::int64_t skip = 0;
    std::int64_t limit = 0;
    std::optional<std::int64_t> batch_size;
    bool single_batch = false;
    bool counts = false;  // $count, or $group that only counts
    std::string count_field;
    bool count_has_id = false;
  };
  struct Failure {
    int code = 0;
    std::string message;
  };

  StoreReply find(std::string_view body, const Field& command, std::string_view db);
  StoreReply aggregate(std::string_view body, const Field& command, std::string_view db);
  StoreReply count(std::string_view body, const Field& command);
  StoreReply get_more(std::string_view body, const Field& command, std::string_view db);
  StoreReply kill_cursors(std::string_view body, const Field& command);
  StoreReply write(const CommandInput& input, const Field& command);
  StoreReply other(std::string_view name, std::string_view db);
  StoreReply server_status() const;

  std::optional<Failure> parse_find(std::string_view body, Query& query) const;
  std::optional<Failure> parse_pipeline(const Field& pipeline, Query& query) const;
  std::optional<Failure> select(const Query& query, Selection& selection);
  std::optional<Failure> narrow(std::string_view filter, const Shape& shape, std::int64_t& from,
                                std::int64_t& to) const;
  DocumentImages* images_of(std::size_t doc_bytes, bool with_sort_key);
  StoreReply first_batch(const Query& query, std::string_view db, const Selection& selection);
  StoreReply batch(std::string_view name, std::string_view ns, std::int64_t cursor_id,
                   const Selection& all, std::size_t count) const;
  static StoreReply error(int code, std::string_view message);
  static StoreReply error(const Failure& failure) { return error(failure.code, failure.message); }
  std::int64_t next_cursor_id();

  StoreOptions options_;
  std::map<std::pair<std::size_t, bool>, std::unique_ptr<DocumentImages>> images_;
  std::unordered_map<std::int64_t, Cursor> cursors_;
  std::uint64_t cursor_seed_ = 0;
  std::uint64_t written_documents_ = 0;
};

}  // namespace spillway::bench
