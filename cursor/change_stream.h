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
      skipped,  // one that is not the client's: call next() again
      passed,   // … an invalidation that the client has behind it: its shard must be asked anew for what comes after it
      unknown,  // there may be a shard at the event's time that is not in the stream: see shards_known_at
      wait,     // shards without an event here must be asked
      end,      // the last event has left
    } kind = Kind::end;
    std::size_t remote = 0;
    DocView event{};  // valid while its batch is; none of one that was skipped
    std::uint64_t time = 0;
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

  // $readPreference as the client gave it; not there: primary.
  ValueView read_preference() const { return command.view()["$readPreference"]; }

  // For a router that opens it on more shards: the command without a beginning, and the time to which no shard has
  // events that is not in the stream. Nothing later leaves, or is promised.
  BsonDoc command;
  std::uint64_t began_at = 0, shards_known_at = 0;
  bool looks_up = false;  // updates' documents, as they are now
  BsonDoc stages;         // behind $changeStream, for a shard to run on each event; {}: none
  std::shared_ptr<WaitingReplies> waiting;

  // What it keeps of the shards' bytes is paid from this budget. False: it has no room.
  bool pay(MemoryBudget& budget);
  std::size_t held_bytes() const noexcept { return room_.bytes() + (waiting ? waiting->held_bytes() : 0); }

 private:
  Result<bool> skips(std::string_view digits);
  bool passes(std::uint16_t shard, std::string_view digits);
  // The least promise of those that may send more; null: there are none.
  const BsonDoc* least_promise(std::span<const RemoteCursor> remotes) const noexcept;
  std::size_t kept_bytes() const noexcept;

  std::vector<BsonDoc> promises_;  // tokens, of each remote
  BsonDoc high_water_;
  std::string resume_digits_;  // empty: nothing is looked for
  std::string passed_uuid_;    // of the collection whose invalidation the stream began after
  bool began_after_invalidation_ = false;
  std::vector<std::uint16_t> passed_on_;  // the shards that have told of it
  std::int32_t lost_code_ = 0;
  bool found_ = false;
  bool ended_ = false;
  Reservation room_;
};

}  // namespace spillway
