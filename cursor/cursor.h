// ClusterCursor: the client's cursor over N shard cursors. A value without socket, timer or executor: a
// getMore checks it out of the registry on any worker, works on it, and returns it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/batch.h"
#include "cursor/bson_writer.h"
#include "cursor/cursor_charge.h"
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
  bool head_keyed = false;  // head_key is the head document's
  // So many of the first in `parked` are the rest of the reply whose documents are being read.
  std::uint16_t parked_rest = 0;
  HostName host;            // getMore goes to the host that opened the cursor
  std::int64_t id = 0;
  // Both are short, and mostly empty: an empty deque would take more than the rest of a cursor.
  std::vector<Batch> batches;
  std::vector<SpillTicket> parked;  // what follows the batches, in order, while it is idle
  std::string head_key;  // sorted cursors: the order key of the head document, valid if head_keyed
  Reservation key_room;  // pays for what head_key takes beside itself

  const Batch* front() const noexcept { return batches.empty() ? nullptr : &batches.front(); }
  bool has_document() const noexcept { return front() != nullptr && front()->peek().has_value(); }
  // Its next document is here, but not in its batches.
  bool must_unpark() const noexcept { return !has_document() && !parked.empty(); }
  // What cannot be read of its batch is not its end: a later read gets the error.
  bool damaged() const noexcept { return front() != nullptr && front()->malformed(); }
  bool finished() const noexcept { return id == 0 && !has_document() && parked.empty() && !damaged(); }

  // Takes the head document. True: it was the last of what the shard sent at once.
  bool pop();
  // A parked piece has come back: it becomes the first batch. REQUIRES that it was fetched of parked.front().
  void unpark(Batch piece);

  // What head_key takes beside itself: short keys nothing.
  std::size_t key_bytes() const noexcept {
    return head_key.capacity() > std::string().capacity() ? head_key.capacity() + 1 : 0;
  }
  // head_key becomes this one, if it can be in room that a dropped key left to this thread.
  void set_key(std::string_view key);
  // The key is made anew when it is needed.
  void drop_key() noexcept;
  void drop_documents() noexcept;
};

// Stages that run on the merged stream (the second half of an aggregation). Implemented by the exec layer.
class DocumentStage {
 public:
  virtual ~DocumentStage() = default;
  virtual Result<void> push(DocView document) = 0;
  virtual Result<void> finish() = 0;                // no more input
  virtual Result<std::optional<BsonDoc>> next() = 0;  // the next output document, if one is ready
  virtual bool busy() const { return false; }  // next() did a part of its work: it wants another call before all else
  virtual bool wants_more() const = 0;  // false: input may stop (a limit was reached)
  virtual bool exhausted() const = 0;   // after finish(): nothing is left
  // What it holds of a memory budget, at no cost: asked of idle cursors, under a lock.
  virtual std::size_t held_bytes() const noexcept = 0;
};

// How a sorted cursor gets the key of a document.
enum class SortKeySource : std::uint8_t { none, document, sort_key_field };

// How the remotes' documents become one stream, and how far that is (merge.h).
struct MergeState {
  std::optional<SortPattern> sort;
  std::vector<std::string> strip_fields;  // added for the sort; taken out of each document again
  std::optional<std::int64_t> limit_remaining;
  std::int64_t skip_remaining = 0;
  std::uint32_t next_remote = 0;  // unsorted: where the round robin stands
  SortKeySource sort_keys = SortKeySource::none;

  bool sorted() const noexcept { return sort_keys != SortKeySource::none; }
};

// The Stable API, as a command asks for it.
struct ApiParameters {
  bool version = false;  // 1, the only one
  std::optional<bool> strict, deprecation_errors;
  bool operator==(const ApiParameters&) const = default;
  bool is_strict() const noexcept { return strict.value_or(false); }
};

// Session facts a getMore is checked against.
struct CursorSession {
  std::string lsid;  // the lsid document's bytes; empty: no session
  std::optional<std::int64_t> txn_number;
  bool in_transaction = false;
  ApiParameters api{};
};

// What is fetched before the client asks.
struct ReadAhead {
  std::unique_ptr<Error> failed;      // what it met: for the getMore that asks
  std::int64_t batch_size = 0;        // one shard: what it is asked for; 0: no number
  std::int64_t last_batch_size = 0;   // … and the client's getMore that this is the size of
  std::int64_t answered_ns = 0;       // when the last batch went out
  std::int64_t pause_ns = 0;          // how long the client took for the one before
  bool begun = false;                 // a fetch was, that no getMore has asked for yet
  std::uint8_t depth = 1;             // how many batches of each shard may wait
};

struct ClusterCursor;

// The registry's own, while a cursor is idle.
class IdleLinks {
  friend class CursorRegistry;
  friend class IdleList;
  ClusterCursor* before_ = nullptr;
  ClusterCursor* after_ = nullptr;
  std::int64_t clientless_since_ns_ = 0;  // 0: its client is there, as far as is known
};

// The program that a connection belongs to, as far as a router can tell. One object per connection,
// shared by the cursors that the connection used last.
struct CursorClient {
  std::string address;      // without the port
  std::string application;  // hello's application.name; may be empty
  std::uint64_t key = 0;    // hash of client metadata: the same program, or its twin
  std::int64_t connection_id = 0;
  bool load_balanced = false;  // its cursors end with it

  // Who counts as one when shares of the memory are compared.
  bool same_holder(const CursorClient& other) const noexcept {
    return address == other.address && application == other.application;
  }
};

struct ClusterCursor {
  std::int64_t id = 0;
  std::string ns;  // "db.collection", as the client sees it and getMore names it towards shards
  std::vector<RemoteCursor> remotes;
  MergeState merge;
  std::unique_ptr<DocumentStage> stage;
  std::optional<BsonDoc> stashed;  // a stage's document that did not fit into the last batch

  std::int64_t batch_size = 0;  // the find's; 0: none was given
  // Flags and small numbers stand together: there may be 100,000 cursors.
  bool stage_finished = false;
  bool tailable = false;
  bool await_data = false;
  bool change_stream = false;   // each batch comes with a resume token, which its reply must keep
  bool no_timeout = false;
  bool allow_partial = false;   // allowPartialResults: a lost shard ends its stream, no more
  bool partial = false;         // … and that happened
  bool whole_documents = false;  // the collection's own, not projected
  bool from_one_shard = false;  // replies pass through: nothing is left to be applied here
  bool broken = false;          // it can only end: a batch did not arrive, a stage failed
  CursorSession session;
  std::string owner;            // the user that created it; empty without authentication
  std::shared_ptr<const CursorClient> client;  // who used it last; null: nobody outside
  CursorCharge charge;              // in the account of who opened it
  std::string originating_command;  // BSON, at most limits::originating_command_bytes_max
  std::string comment;          // BSON element to repeat on getMores, or empty
  Reservation kept;             // pays for what it keeps of its request, if that is much

  std::int64_t created_ms = 0;  // wall clock, for currentOp
  std::uint64_t documents_returned = 0;
  std::uint64_t batches_returned = 0;
  double mean_document_bytes = 0;  // learnt from the batches seen

  ReadAhead ahead;
  IdleLinks idle;

  // The two halves of `ns`; valid while it stays.
  std::string_view database() const noexcept;
  std::string_view collection() const noexcept;
  bool exhausted() const noexcept;       // nothing is left to return
  // A shard's next batch may be the client's next batch: nothing is buffered, and nothing is left to be applied here.
  bool passes_through() const noexcept;
  // In memory, parked ones as they are there; with what its stage holds and what it keeps of its request.
  std::size_t buffered_bytes() const noexcept;
  std::size_t parkable_bytes() const noexcept;  // what park() would move
  // REQUIRES that it is idle. Moves the batches to the store, as far as it takes them.
  void park(SpillStore& store, std::int64_t now_ns);
  void learn_mean(std::size_t bytes, std::size_t documents) noexcept;
  // Before it becomes idle: nearly read-out batches let go of their large blocks, and keys go.
  void compact(MemoryBudget& budget) noexcept;
  std::size_t open_remotes() const noexcept;  // shard cursors that would have to be killed
};

using CursorPtr = std::unique_ptr<ClusterCursor>;

}  // namespace spillway
