// ClusterCursor: the client's cursor over N shard cursors. It has no socket, timer or executor, so a getMore can check
// it out of the registry on any worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/batch.h"
#include "cursor/bson_writer.h"
#include "cursor/change_stream.h"
#include "cursor/cursor_charge.h"
#include "cursor/document_size.h"
#include "cursor/host_name.h"
#include "cursor/sort_pattern.h"

namespace spillway {

// A shard's half of a cursor. `id` 0: exhausted on the shard; buffered batches may remain.
struct RemoteCursor {
  RemoteCursor() = default;
  RemoteCursor(RemoteCursor&&) = default;
  RemoteCursor& operator=(RemoteCursor&&) = default;

  std::uint16_t shard = 0;
  std::uint16_t port = 0;
  bool head_keyed = false;  // head_key belongs to the head document
  // How many of the first pieces in `parked` belong to the reply that is being read.
  std::uint16_t parked_rest = 0;
  HostName host;            // getMore goes to the host that opened the cursor
  std::int64_t id = 0;
  // Vectors, because both are short and mostly empty: an empty deque is larger than the rest of a cursor.
  std::vector<Batch> batches;
  std::vector<SpillTicket> parked;  // documents after those in `batches`, in order
  std::string head_key;  // sorted cursors: the order key of the head document, valid if head_keyed
  Reservation key_room;  // pays for the heap memory of head_key

  const Batch* front() const noexcept { return batches.empty() ? nullptr : &batches.front(); }
  bool has_document() const noexcept { return !batches.empty() && batches.front().has_document(); }
  // The next document is in a parked piece.
  bool must_unpark() const noexcept { return !has_document() && !parked.empty(); }
  // A damaged batch is not the end: the next read returns the error.
  bool damaged() const noexcept { return front() != nullptr && front()->malformed(); }
  bool finished() const noexcept { return id == 0 && !has_document() && parked.empty() && !damaged(); }

  // Removes the head document. True: it was the last of its reply.
  bool pop();
  // Makes a fetched piece the first batch. REQUIRES that it is the one of parked.front().
  void unpark(Batch piece);

  // The heap memory of a key; short keys have none.
  std::size_t key_bytes() const noexcept {
    return head_key.capacity() > std::string().capacity() ? head_key.capacity() + 1 : 0;
  }
  // Sets head_key if a dropped key has left this thread enough memory for it.
  void set_key(std::string_view key);
  // Drops the key. It is made again when it is needed.
  void drop_key() noexcept;
  void drop_documents() noexcept;
};

// Stages that run on the merged stream (the second half of an aggregation). Implemented by the exec layer.
class DocumentStage {
 public:
  virtual ~DocumentStage() = default;
  virtual Result<void> push(DocView document) = 0;
  virtual Result<void> finish() = 0;                // no more input
  // The next output document, if one is ready (else null). It stays paid for, and valid, until pop().
  virtual Result<const BsonDoc*> front() = 0;
  virtual BsonDoc pop() = 0;                   // REQUIRES that front() returned one
  virtual bool busy() const { return false; }  // front() has done a part of its work: call it again
  virtual bool wants_more() const = 0;  // false: input may stop (a limit was reached)
  virtual bool exhausted() const = 0;   // after finish(): nothing is left
  // The bytes that it holds of a budget. Called for idle cursors, under a lock: must be quick.
  virtual std::size_t held_bytes() const noexcept = 0;
};

// How a sorted cursor gets the key of a document.
enum class SortKeySource : std::uint8_t { none, document, sort_key_field };

// How the remotes' documents become one stream, and the state of that (merge.h).
struct MergeState {
  std::optional<SortPattern> sort;
  std::vector<std::string> strip_fields;  // that the router added for the sort; removed from each document
  std::optional<std::int64_t> limit_remaining;
  std::int64_t skip_remaining = 0;
  std::uint32_t next_remote = 0;  // unsorted: the round robin's next one
  SortKeySource sort_keys = SortKeySource::none;

  bool sorted() const noexcept { return sort_keys != SortKeySource::none; }
};

// A command's parameters of the Stable API.
struct ApiParameters {
  bool version = false;  // 1, the only one
  std::optional<bool> strict, deprecation_errors;
  bool operator==(const ApiParameters&) const = default;
  bool is_strict() const noexcept { return strict.value_or(false); }
};

// The session that a getMore must have.
struct CursorSession {
  std::string lsid;  // the lsid document's bytes; empty: no session
  std::optional<std::int64_t> txn_number;
  bool in_transaction = false;
  ApiParameters api{};
};

// State of read-ahead.
struct ReadAhead {
  std::unique_ptr<Error> failed;      // its error, for the next getMore
  std::int64_t batch_size = 0;        // one shard: of its getMore; 0: none
  std::int64_t last_batch_size = 0;   // … and of the client's getMore that it was taken from
  std::int64_t answered_ns = 0;       // when the last batch was sent to the client
  std::int64_t pause_ns = 0;          // the client's time between two batches
  bool begun = false;                 // a fetch has begun that no getMore has used yet
  std::uint8_t depth = 1;             // how many batches of each shard may wait
};

struct ClusterCursor;

// Used by the registry while a cursor is idle.
class IdleLinks {
  friend class CursorRegistry;
  friend class IdleList;
  ClusterCursor* before_ = nullptr;
  ClusterCursor* after_ = nullptr;
  std::int64_t clientless_since_ns_ = 0;  // 0: its client is connected, as far as the router knows
};

// The program that a connection belongs to, as far as a router can know. One object per connection; the cursors that
// the connection used last share it.
struct CursorClient {
  std::string address;      // without the port
  std::string application;  // hello's application.name; may be empty
  std::uint64_t key = 0;    // hash of the client metadata; two copies of a program have the same
  std::int64_t connection_id = 0;
  bool load_balanced = false;  // its cursors end with the connection
  std::atomic<bool> connected{true};  // the connection is open

  // Cursors with the same value count as one client's when memory is shared out.
  bool same_holder(const CursorClient& other) const noexcept {
    return address == other.address && application == other.application;
  }
};

struct ClusterCursor {
  std::int64_t id = 0;
  std::string ns;  // "db.collection", as the client sees it
  std::unique_ptr<const std::string> below_view;  // its collection's name on shards; null: the same
  std::vector<RemoteCursor> remotes;
  MergeState merge;
  std::unique_ptr<DocumentStage> stage;
  std::unique_ptr<ChangeStream> changes;  // of several shards; null: none

  std::int64_t batch_size = 0;  // the find's; 0: none was given
  std::uint64_t at_cluster_time = 0;  // that its shards read at; 0: none was named
  // Flags are next to each other to save padding: there may be 100,000 cursors.
  bool stage_finished = false;
  bool tailable = false;
  bool await_data = false;
  bool change_stream = false;   // the reply must keep each batch's resume token
  bool no_timeout = false;
  bool allow_partial = false;   // allowPartialResults: a lost shard ends only its own stream
  bool partial = false;         // a shard was lost
  bool whole_documents = false;  // the collection's own, not projected
  bool from_one_shard = false;  // replies pass through unchanged
  bool broken = false;          // it must end: a batch was lost, or a stage failed
  CursorSession session;
  std::string owner;            // the user that created it; empty without authentication
  std::shared_ptr<const void> owner_then;  // the user's rights when it was last used, as a layer above knows them
  std::shared_ptr<const CursorClient> client;  // the last client; null: the router itself
  CursorCharge charge;              // in the account of the client that opened it
  std::string originating_command;  // BSON, at most limits::originating_command_bytes_max
  std::string comment;          // a BSON element that getMores repeat, or empty
  Reservation kept;             // pays for what it keeps of its request, if that is large
  Reservation working_set;      // of a merge: for replies that it needs to go on (exec/cursors/working_set.h)

  std::int64_t created_ms = 0;  // wall clock, for currentOp
  // On the steady clock, from its command's maxTimeMS; 0: none. It moves on by the time for which the cursor was idle.
  std::int64_t deadline_ns = 0;
  std::uint64_t documents_returned = 0;
  std::uint64_t batches_returned = 0;
  DocumentSize document_size;
  std::uint64_t output_shape = 0;  // of the projection or pipeline that makes its documents; 0: none is known

  ReadAhead ahead;
  IdleLinks idle;

  // The two parts of `ns`; valid while `ns` does not change.
  std::string_view database() const noexcept;
  std::string_view collection() const noexcept;
  std::string_view remote_collection() const noexcept { return below_view ? *below_view : collection(); }
  bool exhausted() const noexcept;       // no document is left
  // May a shard's next batch become the client's next batch? If nothing is buffered and there is nothing to apply.
  bool passes_through() const noexcept;
  // Bytes in memory: batches, parked pieces in their compressed size, the stage, and what it keeps of its request.
  std::size_t buffered_bytes() const noexcept;
  std::size_t parkable_bytes() const noexcept;  // that park() would move or give back
  // Moves batches to the store, as many as the store accepts; with the last one the working set goes, too. REQUIRES an
  // idle cursor.
  void park(SpillStore& store, std::int64_t now_ns);
  // Call before the cursor becomes idle: moves small rests of batches into small blocks, and drops keys.
  void compact(MemoryBudget& budget) noexcept;
  std::size_t open_remotes() const noexcept;  // shard cursors that are open
};

using CursorPtr = std::unique_ptr<ClusterCursor>;

}  // namespace spillway
