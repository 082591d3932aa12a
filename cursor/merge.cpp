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
  Result<Next> lacking = Next{};
  if (!(state_.sorted() ? least(lacking) : in_turn(lacking))) return lacking;
  const std::size_t bytes = document().size();
  if (state_.skip_remaining == 0) return Next{Next::Kind::document, bytes, &remotes_[at_]};
  --state_.skip_remaining;
  pop();
  return Next{Next::Kind::skipped, bytes, &remotes_[at_]};
}

Result<Bytes> Merge::elements() {
  const DocView whole = document();
  const std::vector<std::string>& strip = state_.strip_fields;
  if (strip.empty()) return Bytes(whole.data() + 4, whole.size() - 5);
  std::optional<Bytes> cut;
  if (strip.size() == 1) {
    if (at_ < heads_.size()) cut = heads_[at_].cut;
    if (!cut && strip[0].find('.') == std::string::npos) cut = elements_before_last(whole, whole.find(strip[0]));
  }
  if (cut) return *cut;
  // Copied field by field: of a damaged one only the beginning would be left.
  if (whole.validate().has_error()) return malformed_reply("a document");
  stripped_ = copy_without(whole, strip);
  return Bytes(stripped_.view().data() + 4, stripped_.size() - 5);
}

bool Merge::take() {
  if (state_.limit_remaining) --*state_.limit_remaining;
  return pop();
}

bool Merge::pop() {
  if (at_ < heads_.size()) heads_[at_] = {};
  return remotes_[at_].pop();
}

// True: the next document is that of the remote at_.
bool Merge::in_turn(Result<Next>& lacking) {
  bool open = false;
  const std::size_t n = remotes_.size();
  std::size_t at = state_.next_remote;
  for (std::size_t i = 0; i < n; ++i, ++at) {
    if (at >= n) at %= n;
    at_ = at;
    const RemoteCursor& remote = remotes_[at_];
    if (remote.damaged()) {
      lacking = malformed_reply("the batch");
      return false;
    }
    if (remote.has_document()) {
      state_.next_remote = static_cast<std::uint32_t>(at_);
      return true;
    }
    open = open || remote.id != 0 || remote.must_unpark();
  }
  if (open) lacking = Next{.kind = Next::Kind::fetch};
  return false;
}

// The same for the least. While the tree is built, only the winner's head may have been taken; after anything else than
// a document it is not.
bool Merge::least(Result<Next>& lacking) {
  if (tree_.built()) {
    if (!look_at(tree_.winner(), lacking)) return false;
    tree_.replay([this](std::size_t a, std::size_t b) { return compare(a, b); });
  } else {
    if (remotes_.empty()) return false;
    heads_.assign(remotes_.size(), {});
    for (std::size_t at = 0; at < remotes_.size(); ++at) {
      if (!look_at(at, lacking)) return false;
    }
    tree_.build(remotes_.size(), [this](std::size_t a, std::size_t b) { return compare(a, b); });
  }
  at_ = tree_.winner();
  return heads_[at_].key != Head::Key::none;
}

int Merge::compare(std::size_t a, std::size_t b) const noexcept {
  const Head& left = heads_[a];
  const Head& right = heads_[b];
  if (left.key == Head::Key::none || right.key == Head::Key::none) {
    return static_cast<int>(left.key == Head::Key::none) - static_cast<int>(right.key == Head::Key::none);
  }
  if (left.beginning != right.beginning) return left.beginning < right.beginning ? -1 : 1;
  // No key is the beginning of another one, so that a short one has no equal but itself.
  if (left.key == Head::Key::whole || right.key == Head::Key::whole) return 0;
  return remotes_[a].head_key.compare(remotes_[b].head_key);
}

// Is this remote's head known, or that it has none? If not, what is lacking, and the tree is forgotten.
bool Merge::look_at(std::size_t at, Result<Next>& lacking) {
  RemoteCursor& remote = remotes_[at];
  Head& head = heads_[at];
  if (head.key != Head::Key::unknown) return true;
  if (remote.damaged()) {
    lacking = malformed_reply("the batch");
  } else if (!remote.has_document()) {
    if (remote.id == 0 && !remote.must_unpark()) {
      head.key = Head::Key::none;
      return true;
    }
    lacking = Next{.kind = Next::Kind::fetch};
  } else if (auto keyed = key_head(at); keyed.has_error()) {
    lacking = std::move(keyed.error());
  } else {
    const std::size_t missing = head.key == Head::Key::whole ? 0 : pay_for_key(remote);
    if (missing == 0) return true;
    lacking = Next{Next::Kind::room, missing, &remote};
  }
  tree_.forget();
  return false;
}

Result<void> Merge::key_head(std::size_t at) {
  RemoteCursor& remote = remotes_[at];
  Head& head = heads_[at];
  const DocView document = remote.front()->document();
  const SortPattern& sort = *state_.sort;
  Element sort_key;
  if (state_.sort_keys == SortKeySource::sort_key_field) {
    sort_key = document.find("$sortKey");
    if (!sort_key.exists()) return Error(ErrorCode::internal_error, "a shard's document lacks $sortKey");
    head.cut = elements_before_last(document, sort_key);
  }
  if (const auto whole = sort_key.exists() ? sort.short_key_from_sort_key(sort_key) : sort.short_key(document)) {
    head.key = Head::Key::whole;
    head.beginning = *whole;
    return {};
  }
  if (!remote.head_keyed) {
    thread_local std::string key;  // one at a time per worker is made before it is paid for
    key.clear();
    auto keyed = sort_key.exists() ? sort.append_key_from_sort_key(key, sort_key) : sort.append_key(key, document);
    if (keyed.has_value() && key.size() <= key_room_kept_max) {
      remote.set_key(key);
    } else {
      remote.head_key.swap(key);
      std::string().swap(key);
    }
    if (keyed.has_error()) return keyed;
    remote.head_keyed = true;
  }
  head.key = Head::Key::in_text;
  head.beginning = key_beginning(remote.head_key);
  return {};
}

// Pays for the key that was just made. Not 0: the bytes that it needs; there is no room, and the key is gone.
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
