// Merge: which document of a cursor's shards comes next. With a sort, the least of the shards' head documents. Without
// one, the documents that are here, shard by shard. Applies skip and limit.
//
// Pure: no I/O, no wait, no clock. It charges order keys to the given budget, and says what it needs (fetch, room).
//   Merge merge(cursor.remotes, cursor.merge, budget);
//   while (auto next = merge.next(); next is a document) { use merge.elements(); merge.take(); }
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/container/inlined_vector.h"
#include "cursor/bson_order.h"
#include "cursor/cursor.h"
#include "cursor/loser_tree.h"

namespace spillway {

// Lives while a batch is filled. Not thread-safe.
class Merge {
 public:
  struct Next {
    enum class Kind : std::uint8_t {
      document,
      skipped,  // one document: call next() again. A skip may be long, so the caller can yield
      fetch,    // the next document of a shard must be fetched
      room,     // there is no memory for the order key of a remote's next document
      end,
    } kind = Kind::end;
    std::size_t bytes = 0;           // document, skipped: its size; room: the missing bytes
    RemoteCursor* remote = nullptr;  // document: its shard; room: give its key_room `bytes`
  };

  // The referenced objects must not move. Add documents or room to the remotes only after next() has asked for it.
  Merge(std::span<RemoteCursor> remotes, MergeState& state, MemoryBudget& budget) noexcept
      : remotes_(remotes), state_(state), budget_(budget) {}

  // Errors: InternalError(1) for damaged batches; those of SortPattern's keys.
  Result<Next> next();

  // For the document that next() returned:
  DocView document() const noexcept { return remotes_[at_].front()->document(); }
  // Its encoded elements, without fields that the router added for the sort. Valid until the next call.
  Result<Bytes> elements();
  // Removes it from its remote. True: it was the last document of its shard's reply.
  bool take();

 private:
  // What is known of a remote's head document.
  struct Head {
    enum class Key : std::uint8_t {
      unknown,
      whole,    // `beginning` is all of it
      in_text,  // RemoteCursor::head_key has it
      none,     // the remote is exhausted
    } key = Key::unknown;
    KeyBeginning beginning;
    std::optional<Bytes> cut;  // the document without its $sortKey; nullopt: not known yet
  };

  bool in_turn(Result<Next>& lacking);
  bool least(Result<Next>& lacking);
  bool look_at(std::size_t at, Result<Next>& lacking);
  bool pop();
  int compare(std::size_t a, std::size_t b) const noexcept;
  Result<void> key_head(std::size_t at);
  std::size_t pay_for_key(RemoteCursor& remote);

  std::span<RemoteCursor> remotes_;
  MergeState& state_;
  MemoryBudget& budget_;
  std::size_t at_ = 0;  // the remote of next()'s document
  BsonDoc stripped_;    // the copy that elements() made, if any
  LoserTree tree_;
  absl::InlinedVector<Head, 16> heads_;  // of a sorted merge
};

}  // namespace spillway
