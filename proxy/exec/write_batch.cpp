#include "proxy/exec/write_batch.h"

#include <algorithm>

namespace spillway::exec {

namespace {

ChildBatch& child_of(std::vector<ChildBatch>& children, catalog::ShardIndex shard) {
  const auto found =
      std::find_if(children.begin(), children.end(),
                   [shard](const ChildBatch& child) { return child.shard == shard; });
  if (found != children.end()) return *found;
  children.push_back({shard, {}, 0});
  return children.back();
}

}  // namespace

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

WriteRound WriteBatch::next() {
  if (stopped_) return {};
  return ordered_ ? next_ordered() : next_unordered();
}

WriteRound WriteBatch::next_ordered() {
  WriteRound round;
  if (first_ready_ == ops_.size()) return round;
  const std::size_t first = first_ready_++;
  const PlannedWrite& op = ops_[first];
  const auto index = static_cast<std::uint32_t>(first);
  if (op.refused) {
    round.failed = index;
  } else if (!op.simple()) {
    round.special = index;
  } else if (op.shards.size() > 1) {
    for (const catalog::ShardIndex shard : op.shards)
      round.children.push_back({shard, {index}, op.bytes});
  } else {
    ChildBatch& child = child_of(round.children, op.shards.front());
    add(child, first);
    for (; first_ready_ < ops_.size(); ++first_ready_) {
      const PlannedWrite& next = ops_[first_ready_];
      if (next.refused || !next.simple() || next.shards != op.shards ||
          !fits(child, next))
        break;
      add(child, first_ready_);
    }
  }
  return round;
}

WriteRound WriteBatch::next_unordered() {
  WriteRound round;
  if (simple_left_) {
    gather(round);
    if (!round.children.empty()) return round;
    simple_left_ = false;
  }
  while (first_ready_ < ops_.size() && ops_[first_ready_].done) ++first_ready_;
  if (first_ready_ == ops_.size()) return round;
  const auto index = static_cast<std::uint32_t>(first_ready_++);
  (ops_[index].refused ? round.failed : round.special) = index;
  return round;
}

// Everything that takes one step and fits.
void WriteBatch::gather(WriteRound& round) {
  constexpr std::size_t turned_away_max =
      1024;  // full children end the search: a round must not cost the whole batch
  const auto due = [](const PlannedWrite& op) {
    return !op.done && !op.refused && op.simple();
  };
  while (gather_from_ < ops_.size() && !due(ops_[gather_from_])) ++gather_from_;
  std::size_t turned_away = 0;
  for (std::size_t i = gather_from_; i < ops_.size() && turned_away < turned_away_max; ++i) {
    PlannedWrite& op = ops_[i];
    if (!due(op)) continue;
    const bool room = std::all_of(
        op.shards.begin(), op.shards.end(),
        [&](catalog::ShardIndex shard) { return fits(child_of(round.children, shard), op); });
    if (!room) {
      ++turned_away;
      continue;
    }
    for (const catalog::ShardIndex shard : op.shards)
      add(child_of(round.children, shard), i);
    op.done = true;
  }
  std::erase_if(round.children, [](const ChildBatch& child) { return child.ops.empty(); });
}

}  // namespace spillway::exec
