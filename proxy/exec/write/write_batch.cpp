#include "proxy/exec/write/write_batch.h"

#include <algorithm>
#include <utility>

namespace spillway::exec {

// There may be a thousand shards, and 100,000 operations: no search.
ChildBatch& WriteBatch::child_of(WriteRound& round, catalog::ShardIndex shard) {
  if (child_places_.size() <= shard) child_places_.resize(shard + std::size_t{1});
  std::uint32_t& place = child_places_[shard];
  if (place == 0) {
    round.children.push_back({shard, {}, 0});
    place = static_cast<std::uint32_t>(round.children.size());
  }
  return round.children[place - 1];
}

void WriteBatch::add(ChildBatch& child, std::size_t index) const {
  child.ops.push_back(static_cast<std::uint32_t>(index));
  child.bytes += bytes_of(ops_[index]);
}

bool WriteBatch::fits(const ChildBatch& child, const PlannedWrite& op) const noexcept {
  if (child.ops.empty()) return true;
  return child.ops.size() < room_.ops && child.bytes + bytes_of(op) <= room_.bytes;
}

bool WriteBatch::fits_one_child() const noexcept {
  std::size_t bytes = 0;
  for (const PlannedWrite& op : ops_) bytes += bytes_of(op);
  return ops_.size() == 1 || (ops_.size() <= room_.ops && bytes <= room_.bytes);
}

catalog::ShardSet WriteBatch::shards() const {
  catalog::ShardSet all;
  for (const PlannedWrite& op : ops_) {
    for (const catalog::ShardIndex shard : op.shards) all.insert(shard);
  }
  return all;
}

std::optional<catalog::ShardIndex> WriteBatch::only_shard() const {
  const PlannedWrite& first = ops_.front();
  if (first.refused || first.shards.empty()) return std::nullopt;
  const catalog::ShardIndex shard = first.shards.front();
  for (const PlannedWrite& op : ops_) {
    if (op.refused || !op.simple() || op.shards.size() != 1 ||
        op.shards.front() != shard) {
      return std::nullopt;
    }
  }
  return shard;
}

bool WriteBatch::adds_ids() const noexcept {
  return std::any_of(ops_.begin(), ops_.end(),
                     [](const PlannedWrite& op) { return op.new_id.has_value(); });
}

void WriteBatch::take_all() noexcept {
  for (PlannedWrite& op : ops_) op.done = true;
  first_ready_ = ops_.size();
}

void WriteBatch::give_back(std::size_t index) noexcept {
  first_ready_ = std::min(first_ready_, index);
  gather_from_ = std::min(gather_from_, index);
  simple_left_ = true;
  ops_[index].done = false;
}

WriteRound WriteBatch::next() {
  WriteRound round;
  while (!fill(round, ops_.size())) {
  }
  return round;
}

bool WriteBatch::fill(WriteRound& round, std::size_t operations) {
  if (stopped_) return true;
  return ordered_ ? fill_ordered(round, operations) : fill_unordered(round, operations);
}

bool WriteBatch::fill_ordered(WriteRound& round, std::size_t operations) {
  while (first_ready_ < ops_.size() && ops_[first_ready_].done) ++first_ready_;
  if (first_ready_ == ops_.size()) return true;
  if (round.children.empty()) {
    const std::size_t first = first_ready_++;
    const PlannedWrite& op = ops_[first];
    const auto index = static_cast<std::uint32_t>(first);
    if (op.refused) {
      round.failed = index;
      return true;
    }
    if (!op.simple()) {
      round.special = index;
      return true;
    }
    if (op.shards.size() > 1 || op.everywhere) {
      for (const catalog::ShardIndex shard : op.shards)
        round.children.push_back({shard, {index}, op.bytes});
      return true;
    }
    round.children.push_back({op.shards.front(), {}, 0});
    add(round.children.back(), first);
  }
  ChildBatch& child = round.children.front();
  const PlannedWrite& before = ops_[first_ready_ - 1];
  for (; first_ready_ < ops_.size(); ++first_ready_, --operations) {
    if (operations == 0) return false;
    const PlannedWrite& next = ops_[first_ready_];
    if (next.done || next.refused || !next.simple() || next.everywhere) break;
    if (next.shards != before.shards || !fits(child, next)) break;
    add(child, first_ready_);
  }
  return true;
}

bool WriteBatch::fill_unordered(WriteRound& round, std::size_t operations) {
  if (simple_left_) {
    if (!gather(round, operations)) return false;
    if (!round.children.empty()) return true;
    simple_left_ = false;
  }
  while (first_ready_ < ops_.size() && ops_[first_ready_].done) ++first_ready_;
  if (first_ready_ == ops_.size()) return true;
  const auto index = static_cast<std::uint32_t>(first_ready_++);
  ops_[index].done = true;
  (ops_[index].refused ? round.failed : round.special) = index;
  return true;
}

// All operations that take one step and fit.
bool WriteBatch::gather(WriteRound& round, std::size_t operations) {
  constexpr std::size_t turned_away_max =
      1024;  // full children end the search: a round must not cost the whole batch
  const auto due = [](const PlannedWrite& op) {
    return !op.done && !op.refused && op.simple();
  };
  if (!std::exchange(gathering_, true)) {
    while (gather_from_ < ops_.size() && !due(ops_[gather_from_])) ++gather_from_;
    gather_at_ = gather_from_;
    turned_away_ = 0;
    child_places_.clear();
  }
  // As the first operation that is due.
  const bool everywhere = gather_from_ < ops_.size() && ops_[gather_from_].everywhere;
  for (; gather_at_ < ops_.size() && turned_away_ < turned_away_max; ++gather_at_, --operations) {
    if (operations == 0) return false;
    PlannedWrite& op = ops_[gather_at_];
    if (!due(op) || op.everywhere != everywhere) continue;
    if (op.shards.size() == 1) {
      ChildBatch& child = child_of(round, op.shards.front());
      op.done = fits(child, op);
      if (op.done) {
        add(child, gather_at_);
      } else {
        ++turned_away_;
      }
      continue;
    }
    const bool room = std::all_of(
        op.shards.begin(), op.shards.end(),
        [&](catalog::ShardIndex shard) { return fits(child_of(round, shard), op); });
    if (!room) {
      ++turned_away_;
      continue;
    }
    for (const catalog::ShardIndex shard : op.shards)
      add(child_of(round, shard), gather_at_);
    op.done = true;
  }
  gathering_ = false;
  std::erase_if(round.children, [](const ChildBatch& child) { return child.ops.empty(); });
  return true;
}

}  // namespace spillway::exec
