// Merge: which document of a cursor's shards comes next. In the order of a sort, the least of their heads; without one,
// what is there, shard by shard. Skips and limits.
//
// Pure: no I/O, no wait, no clock. It pays for order keys from the budget that it is given, and asks for what it lacks.
//   Merge merge(cursor.remotes, cursor.merge, budget);
//   while (auto next = merge.next(); next is a document) { use merge.elements(); merge.take(); }
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/container/inlined_vector.h"
#include "cursor/cursor.h"
#include "cursor/loser_tree.h"

namespace spillway {

// Lives while a batch is filled. Not thread-safe.
class Merge {
 public:
  struct Next {
    enum class Kind : std::uint8_t {
      document,
      skipped,  // one was: ask again. (A skip may be long, and others want their turn.)
      fetch,    // a shard's next document is not here
      room,     // the order key of a remote's next document could not be paid for
      end,
    } kind = Kind::end;
    std::size_t bytes = 0;           // document, skipped: its size; room: what is lacking
    RemoteCursor* remote = nullptr;  // document; room: whose key_room is to be given so much
  };

  // What these refer to stays where it is; the remotes may get documents and room after a next() that asks for it.
  Merge(std::span<RemoteCursor> remotes, MergeState& state, MemoryBudget& budget) noexcept
      : remotes_(remotes), state_(state), budget_(budget) {}

  // Errors: InternalError(1) for damaged batches; those of SortPattern's keys.
  Result<Next> next();

  // Of the document that next() gave.
  DocView document() const noexcept { return *remotes_[at_].front()->peek(); }
  // What it consists of, encoded, without fields that only the proxy asked for. Good until the next call.
  Result<Bytes> elements();
  // It was used. True: it was the last of what its shard sent at once.
  bool take();

 private:
  Result<Next> in_turn();
  Result<Next> least();
  Result<Next> look_at(std::size_t at);
  Result<void> key_head(std::size_t at);
  std::size_t pay_for_key(RemoteCursor& remote);

  std::span<RemoteCursor> remotes_;
  MergeState& state_;
  MemoryBudget& budget_;
  std::size_t at_ = 0;  // whose document next() gave
  BsonDoc stripped_;    // what elements() had to copy
  LoserTree tree_;
  absl::InlinedVector<std::optional<Bytes>, 16> cuts_;  // heads without their $sortKey, where that is known
};

}  // namespace spillway
