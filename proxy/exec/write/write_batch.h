// A batch of writes on its way to several shards: which operations go out together, in which order.
// Pure: no I/O, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/limits.h"
#include "proxy/exec/write/write_target.h"

namespace spillway::exec {

// One operation of the batch. There may be 100,000: data that only few of them need is computed again in their turn.
struct PlannedWrite {
  // Of its WriteTarget.
  catalog::ShardSet shards;
  Route route = Route::one;
  bool upsert_after = false;
  bool refused = false;  // it cannot be targeted
  bool done = false;
  bool everywhere = false;  // RoutedBy::multi_write
  std::uint32_t bytes = 0;         // its size in a child's section
  std::optional<ObjectId> new_id;  // an insert without _id gets this one

  bool simple() const noexcept {
    return (route == Route::one || route == Route::all) && !upsert_after;
  }
};

// Operations that go to one shard in one command.
struct ChildBatch {
  catalog::ShardIndex shard = 0;
  std::vector<std::uint32_t> ops;  // ascending; all or none of them go everywhere
  std::size_t bytes = 0;
};

// The capacity of a child. `bytes` are for its operations, and for what each takes in its body.
struct ChildRoom {
  std::size_t bytes = limits::message_bytes_max;
  std::size_t bytes_per_op = 0;  // in the body
  std::size_t ops = static_cast<std::size_t>(limits::write_batch_size_max);
};

struct WriteRound {
  std::vector<ChildBatch> children;      // sent in parallel
  std::optional<std::uint32_t> special;  // or: one operation that takes several steps
  std::optional<std::uint32_t> failed;   // or: one that could not be targeted
  bool finished() const noexcept { return children.empty() && !special && !failed; }
};

class WriteBatch {
 public:
  WriteBatch(RecycledVector<PlannedWrite> ops, bool ordered, ChildRoom room = {})
      : ops_(std::move(ops)), ordered_(ordered), room_(room) {}

  const PlannedWrite& op(std::size_t index) const noexcept { return ops_[index]; }
  std::size_t size() const noexcept { return ops_.size(); }
  // The shards of all operations.
  catalog::ShardSet shards() const;
  // Every operation goes to one and the same shard, in one step.
  std::optional<catalog::ShardIndex> only_shard() const;
  bool adds_ids() const noexcept;
  // All operations together.
  bool fits_one_child() const noexcept;

  // The next round; its operations count as done. Ordered: neighbours for one shard together, any other operation
  // alone. Unordered: all operations of one step first, those that go everywhere apart from the others, then the
  // others one by one.
  WriteRound next();
  // The same in steps, with a round that is empty at first: looks at `operations` operations, or a few more. True:
  // the round is complete.
  bool fill(WriteRound& round, std::size_t operations);
  // An ordered batch met an error: no operation is due any more.
  void stop() noexcept { stopped_ = true; }

  // Is it in none of the rounds so far? Between rounds only.
  bool is_due(std::size_t index) const noexcept {
    return !stopped_ && !ops_[index].done && (!ordered_ || index >= first_ready_);
  }
  // Plans may change while an operation is due. `done`: it need not be sent.
  // To plan an operation that is due again: one that took several steps may take one.
  PlannedWrite& plan_of(std::size_t index) noexcept {
    give_back(index);
    return ops_[index];
  }
  // All operations count as done: they were sent without a round.
  void take_all() noexcept;
  // It was not executed, and is due again.
  void give_back(std::size_t index) noexcept;

 private:
  bool fill_ordered(WriteRound& round, std::size_t operations);
  bool fill_unordered(WriteRound& round, std::size_t operations);
  bool gather(WriteRound& round, std::size_t operations);
  // The child for this shard in the round that is being gathered.
  ChildBatch& child_of(WriteRound& round, catalog::ShardIndex shard);
  void add(ChildBatch& child, std::size_t index) const;
  bool fits(const ChildBatch& child, const PlannedWrite& op) const noexcept;
  std::size_t bytes_of(const PlannedWrite& op) const noexcept {
    return op.bytes + room_.bytes_per_op;
  }

  RecycledVector<PlannedWrite> ops_;
  bool ordered_;
  ChildRoom room_;
  bool stopped_ = false;
  bool simple_left_ = true;  // unordered: operations of one step may be left
  std::size_t first_ready_ = 0;
  std::size_t gather_from_ = 0;  // unordered: nothing before it takes one step and is due
  // State of the round that is being gathered.
  bool gathering_ = false;
  std::size_t gather_at_ = 0, turned_away_ = 0;
  std::vector<std::uint32_t> child_places_;  // by shard: in the round's children, from 1; 0: it has none
};

}  // namespace spillway::exec
