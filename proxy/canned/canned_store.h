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
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "cursor/bson_writer.h"
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

struct Query;

class CannedStore {
 public:
  explicit CannedStore(StoreOptions options);

  // The answer to one command. `sequence_documents`: those in the message's kind-1 sections. A bad command gets an
  // error reply with MongoDB's code.
  StoreReply answer(DocView body, std::size_t sequence_documents);
  // The answer to a hello: a document as it is.
  BsonDoc hello_document(std::string_view command_name) const;

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

  Result<StoreReply> run(DocView body, std::size_t sequence_documents);
  Result<StoreReply> find(DocView body, std::string_view db);
  Result<StoreReply> aggregate(DocView body, std::string_view db);
  Result<StoreReply> count(DocView body);
  Result<StoreReply> get_more(DocView body, std::string_view db);
  Result<StoreReply> kill_cursors(DocView body);
  Result<StoreReply> write(DocView body, std::size_t sequence_documents);
  Result<StoreReply> other(std::string_view name, std::string_view db);
  StoreReply server_status() const;

  Result<Selection> select(const Query& query);
  Result<void> narrow(DocView filter, Selection& selection) const;
  // The local position of this shard's first document numbered `number` or more.
  std::int64_t local_at_least(std::int64_t number) const noexcept;
  DocumentImages* images_of(std::size_t doc_bytes, DocumentImages::SortKey sort_key);
  Result<StoreReply> first_batch(const Query& query, std::string_view db, const Selection& selection);
  static StoreReply batch(std::string_view name, std::string_view ns, std::int64_t cursor_id,
                          const Selection& all, std::size_t count);
  std::int64_t next_cursor_id();

  StoreOptions options_;
  std::map<std::pair<std::size_t, DocumentImages::SortKey>, std::unique_ptr<DocumentImages>> images_;
  std::unordered_map<std::int64_t, Cursor> cursors_;
  std::uint64_t cursor_seed_ = 0;
  std::uint64_t written_documents_ = 0;
};

}  // namespace spillway::bench
