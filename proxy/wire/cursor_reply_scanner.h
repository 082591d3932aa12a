// Cut-through of a shard's cursor reply that arrives in pieces: finds the batch in the first bytes,
// says how many bytes it has, and parses what stands before and after it.
//
//   message:  header flags kind | { … cursor: { id, ns, firstBatch: [ ............ ], … }, ok: 1, …
//   }
//             `---------- head, ≤ 256 KiB --------------------------' `- batch bytes -' `-- tail
//             --'
//
// All lengths are checked in the head: the tail's size is known (and bounded) before the first byte of the batch is
// passed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allocator/small_blocks.h"
#include "cursor/bson_view.h"

namespace spillway::wire {

// Views are valid while the scanner lives and is not moved or fed.
struct CursorReplyParts {
  std::string_view batch_name;   // "firstBatch" or "nextBatch"
  std::size_t batch_offset = 0;  // of the array (its length) from the message's first byte
  std::size_t batch_bytes = 0;   // of the whole array: length to terminator
  std::size_t tail_bytes = 0;    // of the message after the array
  // Known for certain when done(); before that, if the field came before the batch.
  bool id_known = false;
  std::int64_t id = 0;
  std::string_view ns;
  bool ok_known = false;
  bool ok = false;
  bool partial_results_returned = false;
  DocView cursor_fields;  // elements of `cursor` except the batch, in the shard's order
  DocView reply_fields;   // elements of the reply except `cursor`
};

// One reply; not reusable. Holds copies of the fields other than the batch (≤
// reply_tail_bytes_max), nothing else. Not thread-safe, no I/O.
class CursorReplyScanner {
 public:
  enum class Head : std::uint8_t {
    need_more,     // call again with more bytes
    batch,         // found: parts() says where; forward the batch, then feed_tail()
    no_batch,      // the whole message is here and is no cursor reply (an error, for instance)
    unstreamable,  // right as far as seen, but to be read whole: checksum, other sections, a batch
                   // that does not come within 256 KiB, or too many fields beside it
  };

  // `from_start`: the message's bytes in hand, from its header on; each call passes all of them
  // again, and more. Malformed bytes: an error (the shard connection is unusable).
  Result<Head> feed_head(Bytes from_start);

  // REQUIRES: feed_head() returned batch. The bytes after the batch, in any cuts, tail_bytes in
  // all; true when they are complete and parts() is final. More than tail_bytes is an error.
  Result<bool> feed_tail(Bytes piece);

  bool done() const noexcept { return done_; }
  std::size_t tail_missing() const noexcept { return parts_.tail_bytes - tail_.size(); }
  const CursorReplyParts& parts() const noexcept { return parts_; }

 private:
  enum class Walk : std::uint8_t { finished, need_more, batch };
  Result<Head> open_message(Bytes from_start);
  Result<Walk> walk_reply(Bytes from_start);
  Result<Walk> walk_cursor(Bytes from_start, std::size_t at, std::size_t end);
  Result<void> take_batch(Bytes from_start, std::string_view name, std::size_t value_at,
                          std::size_t cursor_end);
  Result<void> finish_tail();
  Result<void> check_fields() const;
  bool add_field(RecycledBytes& fields, Bytes raw);
  void publish();

  CursorReplyParts parts_;
  RecycledBytes cursor_fields_ = {0, 0, 0, 0};
  RecycledBytes reply_fields_ = {0, 0, 0, 0};
  RecycledBytes tail_;
  std::size_t message_bytes_ = 0;
  std::size_t body_end_ = 0;    // offset of the body's terminator
  std::size_t cursor_end_ = 0;  // offset of the cursor document's terminator
  bool fields_overflow_ = false;
  bool done_ = false;
};

}  // namespace spillway::wire
