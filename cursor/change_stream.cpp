#include "cursor/change_stream.h"

#include <algorithm>
#include <utility>

#include "cursor/cursor.h"
#include "cursor/field_table.h"
#include "cursor/resume_token.h"

namespace spillway {

namespace {

std::string_view digits_of(const BsonDoc& token) noexcept { return token.view()["_data"].to_text(); }

// A donor's, of the first chunk on another shard: for routers of 4.2. Its name changed after 6.0.
bool tells_new_shard(std::string_view operation) noexcept {
  return operation == "kNewShardDetected" || operation == "migrateChunkToNewShard";
}

// 0: of no token that is known.
std::uint64_t time_of(std::string_view digits) noexcept {
  const auto token = ResumeToken::parse(digits);
  return token ? token->cluster_time : 0;
}

}  // namespace

void ChangeStream::resume_after(DocView token, std::int32_t lost) {
  high_water_ = BsonDoc(token);
  resume_digits_ = digits_of(high_water_);
  lost_code_ = lost;
  const auto parsed = ResumeToken::parse(resume_digits_);
  began_after_invalidation_ = parsed && parsed->from_invalidate;
  if (began_after_invalidation_) passed_uuid_ = parsed->uuid_of(resume_digits_);
}

Result<void> ChangeStream::promise(std::size_t remote, ValueView token) {
  if (!token.exists()) return {};
  if (token_digits(token).empty()) return malformed_reply("the resume token");
  if (promises_.size() <= remote) promises_.resize(remote + 1);
  if (digits_of(promises_[remote]) < token_digits(token)) promises_[remote] = BsonDoc(token.as_document());
  return {};
}

bool ChangeStream::is_promised(std::size_t remotes) const noexcept {
  return promises_.size() == remotes && std::none_of(promises_.begin(), promises_.end(), [](const BsonDoc& each) {
           return digits_of(each).empty();
         });
}

Result<ChangeStream::Next> ChangeStream::next(std::span<RemoteCursor> remotes) {
  if (ended_) return Next{};
  Next least;
  std::string_view least_digits;
  for (std::size_t i = 0; i < remotes.size(); ++i) {
    const RemoteCursor& remote = remotes[i];
    if (remote.damaged()) return malformed_reply("the batch");
    if (!remote.has_document()) continue;
    const DocView event = *remote.front()->peek();
    const std::string_view digits = token_digits(event["_id"]);
    if (digits.empty()) return malformed_reply("an event's resume token");
    if (least.kind == Next::Kind::event && least_digits <= digits) continue;
    least = {.kind = Next::Kind::event, .remote = i, .event = event};
    least_digits = digits;
  }
  const BsonDoc* const promised = least_promise(remotes);
  if (promised == nullptr) return Next{};
  if (least.kind != Next::Kind::event || least_digits > digits_of(*promised)) return Next{.kind = Next::Kind::wait};
  least.time = time_of(least_digits);
  const std::string_view operation = least.event["operationType"].to_text();
  bool skipped = tells_new_shard(operation);
  if (!resume_digits_.empty()) {
    SPILLWAY_TRY(before, skips(least_digits));
    skipped |= *before;
  }
  const bool passed = operation == "invalidate" && (passes(remotes[least.remote].shard, least_digits) || skipped);
  if (passed || skipped) {
    remotes[least.remote].pop();
    least.event = {};
    least.kind = passed ? Next::Kind::passed : Next::Kind::skipped;
  } else if (least.time > shards_known_at) {
    least.kind = Next::Kind::unknown;
  }
  return least;
}

// Is this event before the one to begin after, or that one?
Result<bool> ChangeStream::skips(std::string_view digits) {
  const std::weak_ordering order = event_order(digits, resume_digits_);
  if (order < 0) return true;
  const bool same_version = is_same_version(digits, resume_digits_);
  if (order == 0) {
    found_ = true;
    // Several shards may have the same one, such as a drop or an invalidation.
    if (same_version) resume_digits_ = digits;
    return true;
  }
  // Events of that time may come in another order than that of its version.
  if (!same_version && is_same_time(digits, resume_digits_)) return false;
  if (!found_) {
    return Error(lost_code_, "cannot resume stream; the resume token was not found. " + std::string(digits));
  }
  resume_digits_.clear();
  return false;
}

// Each shard tells of the same drop in its own time, and its cursor ends.
bool ChangeStream::passes(std::uint16_t shard, std::string_view digits) {
  if (!began_after_invalidation_) return false;
  const auto token = ResumeToken::parse(digits);
  if (!token || token->uuid_of(digits) != passed_uuid_) return false;
  if (std::find(passed_on_.begin(), passed_on_.end(), shard) != passed_on_.end()) return false;
  passed_on_.push_back(shard);
  return true;
}

void ChangeStream::take(std::span<RemoteCursor> remotes, const Next& next) {
  const ValueView token = next.event["_id"];
  if (digits_of(high_water_) < token_digits(token)) high_water_ = BsonDoc(token.as_document());
  const std::string_view operation = next.event["operationType"].to_text();
  ended_ = operation == "invalidate";
  // An event of a database that was dropped: it was made again, and its next drop is another one.
  constexpr FieldTable<4> ends({"drop", "rename", "dropDatabase", "invalidate"});
  if (passed_uuid_.empty() && !ends.contains(operation)) began_after_invalidation_ = false;
  remotes[next.remote].pop();
}

const BsonDoc* ChangeStream::least_promise(std::span<const RemoteCursor> remotes) const noexcept {
  static const BsonDoc none;
  const BsonDoc* least = nullptr;
  for (std::size_t i = 0; i < remotes.size(); ++i) {
    if (remotes[i].finished()) continue;
    if (i >= promises_.size()) return &none;
    if (least == nullptr || digits_of(promises_[i]) < digits_of(*least)) least = &promises_[i];
  }
  return least;
}

void ChangeStream::settle(std::span<const RemoteCursor> remotes) {
  // Until its event has been seen, its client must be able to begin where it wanted to.
  if (!resume_digits_.empty() && !found_) return;
  const BsonDoc* const least = least_promise(remotes);
  if (least == nullptr || time_of(digits_of(*least)) > shards_known_at) return;
  if (digits_of(high_water_) < digits_of(*least)) high_water_ = *least;
}

std::size_t ChangeStream::kept_bytes() const noexcept {
  std::size_t bytes = sizeof *this + command.size() + stages.size() + high_water_.size() + resume_digits_.size();
  bytes += passed_uuid_.size() + passed_on_.size() * sizeof passed_on_[0];
  for (const BsonDoc& each : promises_) bytes += sizeof each + each.size();
  return bytes;
}

bool ChangeStream::pay(MemoryBudget& budget) {
  const std::size_t bytes = kept_bytes();
  if (bytes <= room_.bytes()) return true;
  if (room_.bytes() > 0) return room_.try_grow(bytes - room_.bytes());
  auto room = budget.try_reserve(bytes);
  if (!room) return false;
  room_ = *std::move(room);
  return true;
}

}  // namespace spillway
