// ChangeStream: which event of a cluster's shards may leave next.
//
// Each shard's events come in the order of their tokens. A shard promises with each reply that its next events are at
// or past a token (postBatchResumeToken); an event leaves when no shard can send an earlier one. Pure: no I/O, no wait,
// no clock.
//   while (auto next = stream.next(remotes); it is an event) { use next.event; stream.take(remotes, next); }
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/budget.h"
#include "cursor/bson_writer.h"

namespace spillway {

struct RemoteCursor;  // cursor.h

// Shards' replies that came while no getMore waited for them. Implemented by the exec layer.
class WaitingReplies {
 public:
  virtual ~WaitingReplies() = default;
  // Called for idle cursors, under a lock: must be quick. Any thread.
  virtual std::size_t held_bytes() const noexcept = 0;
};

class ChangeStream {
 public:
  struct Next {
    enum class Kind : std::uint8_t {
      event,
      skipped,    // one event before the one that the client has seen last: call next() again
      new_shard,  // an event for the router: another shard may have some from here on. Take it when that is open
      wait,       // shards without an event here must be asked
      end,        // the last event has left
    } kind = Kind::end;
    std::size_t remote = 0;
    DocView event{};  // valid while its batch is
  };

  // Begins with the first event after the one with this token, which must come first. `lost`: the code of the error if
  // it does not.
  void resume_after(DocView token, std::int32_t lost);
  // Begins at a time that this token tells.
  void begin_at(DocView token) { high_water_ = BsonDoc(token); }

  // A reply of this remote promises this token; one that promises nothing changes nothing. Errors: InternalError(1) for
  // what is no token.
  Result<void> promise(std::size_t remote, ValueView token);
  // All remotes have promised something.
  bool is_promised(std::size_t remotes) const noexcept;

  // Errors: InternalError(1) for damaged batches and events without a token; that of resume_after().
  Result<Next> next(std::span<RemoteCursor> remotes);
  // The event leaves.
  void take(std::span<RemoteCursor> remotes, const Next& next);
  // next() has said `wait`: no event comes before what all promise.
  void settle(std::span<const RemoteCursor> remotes);
  // The client's postBatchResumeToken; {}: none yet.
  DocView high_water() const noexcept { return high_water_; }
  // An event that invalidates the stream has left.
  bool ended() const noexcept { return ended_; }

  // For a router that opens it on more shards: the command without a beginning, and the time that no shard has events
  // before which it does not know of.
  BsonDoc command;
  std::uint64_t began_at = 0, shards_seen_at = 0;
  bool looks_up = false;  // updates' documents, as they are now
  std::shared_ptr<WaitingReplies> waiting;

  // What it keeps of the shards' bytes is paid from this budget. False: it has no room.
  bool pay(MemoryBudget& budget);
  std::size_t held_bytes() const noexcept { return room_.bytes() + (waiting ? waiting->held_bytes() : 0); }

 private:
  Result<bool> skips(std::string_view digits);
  // The least promise of those that may send more; null: there are none.
  const BsonDoc* least_promise(std::span<const RemoteCursor> remotes) const noexcept;
  std::size_t kept_bytes() const noexcept;

  std::vector<BsonDoc> promises_;  // tokens, of each remote
  BsonDoc high_water_;
  std::string resume_digits_;  // empty: nothing is looked for
  std::int32_t lost_code_ = 0;
  bool found_ = false;
  bool ended_ = false;
  Reservation room_;
};

}  // namespace spillway
