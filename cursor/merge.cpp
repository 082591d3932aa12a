#include "cursor/merge.h"

#include <string>
#include <utility>

#include "allocator/limits.h"
#include "cursor/strip_fields.h"

namespace spillway {

namespace {

// What a worker keeps to make the next document's sort key in.
constexpr std::size_t key_room_kept_max = 16 * limits::kib;

}  // namespace

Result<Merge::Next> Merge::next() {
  if (state_.limit_remaining && *state_.limit_remaining <= 0) return Next{};
  auto next = state_.sorted() ? least() : in_turn();
  if (next.has_error() || next->kind != Next::Kind::document) return next;
  next->remote = &remotes_[at_];
  next->bytes = document().size();
  if (state_.skip_remaining > 0) {
    --state_.skip_remaining;
    remotes_[at_].pop();
    next->kind = Next::Kind::skipped;
  }
  return next;
}

Result<Bytes> Merge::elements() {
  const DocView whole = document();
  const std::vector<std::string>& strip = state_.strip_fields;
  if (strip.empty()) return Bytes(whole.data() + 4, whole.size() - 5);
  std::optional<Bytes> cut = at_ < cuts_.size() ? cuts_[at_] : std::nullopt;
  if (!cut && strip.size() == 1 && strip[0].find('.') == std::string::npos) {
    cut = elements_before_last(whole, whole.find(strip[0]));
  }
  if (cut) return *cut;
  // Copied field by field: of a damaged one only the beginning would be left.
  if (whole.validate().has_error()) return malformed_reply("a document");
  stripped_ = copy_without(whole, strip);
  return Bytes(stripped_.view().data() + 4, stripped_.size() - 5);
}

bool Merge::take() {
  if (state_.limit_remaining) --*state_.limit_remaining;
  return remotes_[at_].pop();
}

Result<Merge::Next> Merge::in_turn() {
  bool open = false;
  const std::size_t n = remotes_.size();
  for (std::size_t i = 0; i < n; ++i) {
    at_ = (state_.next_remote + i) % n;
    const RemoteCursor& remote = remotes_[at_];
    if (remote.damaged()) return malformed_reply("the batch");
    if (remote.has_document()) {
      state_.next_remote = static_cast<std::uint32_t>(at_);
      return Next{.kind = Next::Kind::document};
    }
    open = open || remote.id != 0 || remote.must_unpark();
  }
  return Next{.kind = open ? Next::Kind::fetch : Next::Kind::end};
}

// While the tree is built, only the winner's head may have been taken; after anything else than a document it is not.
Result<Merge::Next> Merge::least() {
  const bool built = tree_.built();
  const std::size_t first = built ? tree_.winner() : 0;
  const std::size_t end = built ? first + 1 : remotes_.size();
  cuts_.resize(remotes_.size());
  for (std::size_t at = first; at < end; ++at) {
    auto missing = look_at(at);
    if (missing.has_value() && missing->kind == Next::Kind::document) continue;
    tree_.forget();
    return missing;
  }
  if (end == 0) return Next{};
  const auto order = [this](std::size_t a, std::size_t b) {
    const RemoteCursor& left = remotes_[a];
    const RemoteCursor& right = remotes_[b];
    // Without a document here it is exhausted: what is to be fetched was told before.
    if (!left.head_keyed || !right.head_keyed) {
      return static_cast<int>(!left.head_keyed) - static_cast<int>(!right.head_keyed);
    }
    return left.head_key.compare(right.head_key);
  };
  built ? tree_.replay(order) : tree_.build(remotes_.size(), order);
  at_ = tree_.winner();
  return Next{.kind = remotes_[at_].head_keyed ? Next::Kind::document : Next::Kind::end};
}

// What is needed before this remote's head can be compared. `document`: nothing.
Result<Merge::Next> Merge::look_at(std::size_t at) {
  RemoteCursor& remote = remotes_[at];
  if (remote.damaged()) return malformed_reply("the batch");
  if (!remote.has_document()) {
    const bool more = remote.id != 0 || remote.must_unpark();
    return Next{.kind = more ? Next::Kind::fetch : Next::Kind::document};
  }
  if (auto keyed = key_head(at); keyed.has_error()) return keyed.error();
  const std::size_t lacking = pay_for_key(remote);
  return Next{lacking > 0 ? Next::Kind::room : Next::Kind::document, lacking, &remote};
}

Result<void> Merge::key_head(std::size_t at) {
  RemoteCursor& remote = remotes_[at];
  if (remote.head_keyed) return {};
  cuts_[at].reset();
  thread_local std::string key;  // one at a time per worker is made before it is paid for
  key.clear();
  const DocView document = *remote.front()->peek();
  Result<void> keyed;
  if (state_.sort_keys == SortKeySource::sort_key_field) {
    const Element sort_key = document.find("$sortKey");
    if (!sort_key.exists()) {
      return Error(ErrorCode::internal_error, "a shard's document lacks $sortKey");
    }
    cuts_[at] = elements_before_last(document, sort_key);
    keyed = state_.sort->append_key_from_sort_key(key, sort_key);
  } else {
    keyed = state_.sort->append_key(key, document);
  }
  if (keyed.has_value() && key.size() <= key_room_kept_max) {
    remote.set_key(key);
  } else {
    remote.head_key.swap(key);
    std::string().swap(key);
  }
  if (keyed.has_error()) return keyed.error();
  remote.head_keyed = true;
  return {};
}

// Pays for the key that was just made. Not 0: there is no room for so much, and the key is gone.
std::size_t Merge::pay_for_key(RemoteCursor& remote) {
  const std::size_t needed = remote.key_bytes();
  const std::uint64_t paid = remote.key_room.bytes();
  if (needed <= paid || (paid > 0 && remote.key_room.try_grow(needed - paid))) return 0;
  remote.key_room.release();
  auto room = budget_.try_reserve(needed);
  if (!room) {
    remote.drop_key();
    return needed;
  }
  remote.key_room = *std::move(room);
  return 0;
}

}  // namespace spillway
