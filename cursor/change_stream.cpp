#include "cursor/change_stream.h"

#include <algorithm>
#include <utility>

#include "cursor/cursor.h"
#include "cursor/resume_token.h"

namespace spillway {

namespace {

std::string_view text_of(DocView event, std::string_view name) noexcept {
  const ValueView value = event[name];
  return value.is_string() ? value.as_string() : std::string_view();
}

std::string_view digits_of(const BsonDoc& token) noexcept {
  const ValueView data = token.view()["_data"];
  return data.is_string() ? data.as_string() : std::string_view();
}

// From 6.0 on with another name.
bool tells_new_shard(std::string_view operation) noexcept {
  return operation == "newShardDetected" || operation == "migrateChunkToNewShard";
}

}  // namespace

void ChangeStream::resume_after(DocView token, std::int32_t lost) {
  high_water_ = BsonDoc(token);
  resume_digits_ = digits_of(high_water_);
  lost_code_ = lost;
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
  if (!resume_digits_.empty()) {
    const auto skipped = skips(least_digits);
    if (skipped.has_error()) return skipped.error();
    if (*skipped) {
      remotes[least.remote].pop();
      return Next{.kind = Next::Kind::skipped};
    }
  }
  if (tells_new_shard(text_of(least.event, "operationType"))) least.kind = Next::Kind::new_shard;
  return least;
}

// Is this event before the one to begin after, or that one?
Result<bool> ChangeStream::skips(std::string_view digits) {
  if (is_same_event(digits, resume_digits_)) {
    found_ = true;
    resume_digits_ = digits;  // several shards may have the same one, such as a drop or an invalidation
    return true;
  }
  if (digits < resume_digits_) return true;
  if (!found_) {
    return Error(lost_code_, "cannot resume stream; the resume token was not found. " + std::string(digits));
  }
  resume_digits_.clear();
  return false;
}

void ChangeStream::take(std::span<RemoteCursor> remotes, const Next& next) {
  const ValueView token = next.event["_id"];
  if (digits_of(high_water_) < token_digits(token)) high_water_ = BsonDoc(token.as_document());
  ended_ = text_of(next.event, "operationType") == "invalidate";
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
  if (least != nullptr && digits_of(high_water_) < digits_of(*least)) high_water_ = *least;
}

std::size_t ChangeStream::kept_bytes() const noexcept {
  std::size_t bytes = sizeof *this + command.size() + high_water_.size() + resume_digits_.size();
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
