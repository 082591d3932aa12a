#include "proxy/exec/tables/participants.h"

#include <algorithm>

namespace spillway::exec {

const Participants::Participant* Participants::find(catalog::ShardIndex shard) const noexcept {
  const auto at = std::find_if(all_.begin(), all_.end(), [shard](const auto& each) { return each.shard == shard; });
  return at == all_.end() ? nullptr : &*at;
}

Participants::Contact Participants::contact(catalog::ShardIndex shard) {
  Participant* known = find(shard);
  const bool first = known == nullptr;
  if (first) known = &all_.emplace_back(Participant{shard, ReadOnly::unknown, statement_, statement_});
  known->used_at = statement_;
  return {first, known == all_.data()};
}

void Participants::note_answer(catalog::ShardIndex shard, bool read_only) {
  Participant* const known = find(shard);
  if (known == nullptr || known->read_only == ReadOnly::no) return;
  known->read_only = read_only ? ReadOnly::yes : ReadOnly::no;
  if (!read_only && !recovery_shard_) recovery_shard_ = shard;
}

void Participants::add(catalog::ShardIndex shard, bool read_only) {
  contact(shard);
  note_answer(shard, read_only);
}

void Participants::add_with_error(catalog::ShardIndex shard) {
  contact(shard);
  added_with_error_ = statement_;
}

bool Participants::may_restart() const noexcept {
  if (added_with_error_ != 0 && added_with_error_ == statement_) return false;
  return std::none_of(all_.begin(), all_.end(), [this](const Participant& each) {
    return each.used_at == statement_ && each.created_at != statement_;
  });
}

catalog::ShardSet Participants::restart() {
  catalog::ShardSet forgotten;
  for (const Participant& each : all_) {
    if (each.created_at == statement_) forgotten.insert(each.shard);
  }
  if (recovery_shard_ && forgotten.contains(*recovery_shard_)) recovery_shard_.reset();
  all_.erase(std::remove_if(all_.begin(), all_.end(),
                            [this](const Participant& each) { return each.created_at == statement_; }),
             all_.end());
  return forgotten;
}

catalog::ShardSet Participants::shards() const {
  catalog::ShardSet shards;
  for (const Participant& each : all_) shards.insert(each.shard);
  return shards;
}

std::optional<catalog::ShardIndex> Participants::unanswered() const noexcept {
  for (const Participant& each : all_) {
    if (each.read_only == ReadOnly::unknown) return each.shard;
  }
  return std::nullopt;
}

CommitPlan Participants::plan_commit() const {
  CommitPlan plan;
  if (all_.empty()) return plan;
  plan.first = shards();
  if (all_.size() == 1) {
    plan.type = CommitPlan::Type::single_shard;
    plan.last = all_.front().shard;
    return plan;
  }
  catalog::ShardSet readers;
  for (const Participant& each : all_) {
    if (each.read_only == ReadOnly::yes) {
      readers.insert(each.shard);
    } else {
      plan.last = each.shard;
    }
  }
  const std::size_t writers = all_.size() - readers.size();
  if (writers == 0) {
    plan.type = CommitPlan::Type::read_only;
  } else if (writers == 1 && one_writer_last_.value_or(false)) {
    plan.type = CommitPlan::Type::single_write_shard;
    plan.first = readers_committed_ ? catalog::ShardSet() : std::move(readers);
  } else {
    plan.type = CommitPlan::Type::two_phase;
    plan.last = coordinator();
  }
  return plan;
}

}  // namespace spillway::exec
