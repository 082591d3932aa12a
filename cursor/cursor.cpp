#include "cursor/cursor.h"

#include <algorithm>
#include <array>

namespace spillway {

namespace {

// What is copied is at most this part of what is let go.
constexpr std::size_t compact_ratio = 4;

// A piece ends where a document does. Damaged bytes stay together: they are found when they are read.
std::size_t cut_between_documents(std::span<const std::uint8_t> rest, std::size_t wanted) noexcept {
  std::size_t bytes = 0;
  for (DocIterator at(rest.data(), rest.data() + rest.size()); !at.done() && bytes < wanted; ++at) {
    bytes += at->raw.size();
    if (at.malformed()) return rest.size();
  }
  return bytes == 0 ? rest.size() : bytes;
}

// The room of keys that were dropped, for the next getMore of some sorted cursor on this thread.
// Counts in no budget: at most 16 KiB.
class SpareKeys {
 public:
  ~SpareKeys() { gone_ = true; }

  static void keep(std::string& key) noexcept {
    if (gone_ || key.capacity() <= std::string().capacity() || key.capacity() > bytes_max) return;
    if (spares_.count_ < spares_.keys_.size()) spares_.keys_[spares_.count_++].swap(key);
  }
  static void take(std::string& key, std::size_t bytes) noexcept {
    if (gone_ || spares_.count_ == 0 || spares_.keys_[spares_.count_ - 1].capacity() < bytes)
      return;
    key.swap(spares_.keys_[--spares_.count_]);
    std::string().swap(spares_.keys_[spares_.count_]);
  }

 private:
  static constexpr std::size_t bytes_max = 512;
  static thread_local SpareKeys spares_;
  static thread_local bool gone_;  // has no destructor: what ends later still finds it

  std::array<std::string, 32> keys_;
  std::size_t count_ = 0;
};
thread_local SpareKeys SpareKeys::spares_;
thread_local bool SpareKeys::gone_ = false;

}  // namespace

Error malformed_reply(std::string_view what) {
  return Error(ErrorCode::internal_error, "a shard's reply is malformed: " + std::string(what));
}

void Batch::compact(MemoryBudget& budget) noexcept {
  charge_to(budget);
  const std::size_t left = remaining_bytes();
  if (malformed_ || left > held_bytes() / compact_ratio) return;
  auto copy = Buffer::allocate(budget, left);
  if (!copy || copy->capacity() > held_bytes() / compact_ratio) return;
  copy->append(next_, left);
  owner_ = std::move(*copy);
  next_ = owner_.data();
  end_ = next_ + left;
  read();
}

std::optional<SpillTicket> Batch::park(SpillStore& store, std::int64_t now_ns) {
  const auto begin = static_cast<std::size_t>(next_ - owner_.data());
  const std::size_t end = begin + remaining_bytes();
  auto ticket = store.park(owner_, begin, end, cut_between_documents, now_ns);
  if (ticket) head_ = nullptr;
  return ticket;
}

bool RemoteCursor::pop() {
  batches.front().pop();
  head_keyed = false;
  bool ended = false;
  while (!batches.empty() && !has_document() && !damaged()) {
    batches.erase(batches.begin());
    ended = parked_rest == 0;
  }
  return ended;
}

void RemoteCursor::unpark(Batch piece) {
  batches.push_back(std::move(piece));
  parked_rest = std::max<std::uint16_t>(parked_rest, 1);
  if (!parked.front().empty()) return;
  parked.erase(parked.begin());
  --parked_rest;
}

void RemoteCursor::set_key(std::string_view key) {
  if (head_key.capacity() < key.size()) SpareKeys::take(head_key, key.size());
  head_key.assign(key);
}

void RemoteCursor::drop_key() noexcept {
  head_keyed = false;
  SpareKeys::keep(head_key);
  std::string().swap(head_key);
  key_room.release();
}

void RemoteCursor::drop_documents() noexcept {
  batches.clear();
  parked.clear();
  parked_rest = 0;
}

// A database's name has no dot in it.
std::string_view ClusterCursor::database() const noexcept {
  return std::string_view(ns).substr(0, ns.find('.'));
}

std::string_view ClusterCursor::collection() const noexcept {
  const std::size_t dot = ns.find('.');
  return dot == std::string::npos ? std::string_view() : std::string_view(ns).substr(dot + 1);
}

bool ClusterCursor::exhausted() const noexcept {
  if (changes && changes->ended()) return true;
  if (stage && !changes) return stage_finished && stage->exhausted();
  if (merge.limit_remaining && *merge.limit_remaining <= 0) return true;
  for (const RemoteCursor& remote : remotes) {
    if (!remote.finished()) return false;
  }
  return true;
}

bool ClusterCursor::passes_through() const noexcept {
  if (stage || changes || merge.limit_remaining || merge.skip_remaining > 0 || allow_partial) return false;
  if (merge.sorted() || !merge.strip_fields.empty()) return false;
  for (const RemoteCursor& remote : remotes) {
    if (!remote.batches.empty() || !remote.parked.empty()) return false;
  }
  return true;
}

std::size_t ClusterCursor::buffered_bytes() const noexcept {
  std::size_t bytes = kept.bytes() + working_set.bytes();
  if (stage) bytes += stage->held_bytes();
  if (changes) bytes += changes->held_bytes();
  for (const RemoteCursor& remote : remotes) {
    for (const Batch& batch : remote.batches) bytes += batch.held_bytes();
    for (const SpillTicket& ticket : remote.parked) bytes += ticket.memory_bytes();
    bytes += remote.key_room.bytes();
  }
  return bytes;
}

void ClusterCursor::compact(MemoryBudget& budget) noexcept {
  for (RemoteCursor& remote : remotes) {
    remote.drop_key();
    for (Batch& batch : remote.batches) batch.compact(budget);
  }
}

std::size_t ClusterCursor::parkable_bytes() const noexcept {
  std::size_t bytes = working_set.bytes();
  for (const RemoteCursor& remote : remotes) {
    for (const Batch& batch : remote.batches) bytes += batch.held_bytes();
    for (const SpillTicket& ticket : remote.parked) bytes += ticket.given_up() ? ticket.memory_bytes() : 0;
  }
  return bytes;
}

void ClusterCursor::park(SpillStore& store, std::int64_t now_ns) {
  for (RemoteCursor& remote : remotes) {
    for (SpillTicket& ticket : remote.parked) store.park_again(ticket, now_ns);
    // From the back, so that whatever is refused leaves the order as it was.
    while (!remote.batches.empty()) {
      Batch& last = remote.batches.back();
      if (last.malformed()) break;
      if (last.peek()) {
        auto ticket = last.park(store, now_ns);
        if (!ticket) return;
        remote.parked.insert(remote.parked.begin(), *std::move(ticket));
        if (remote.parked_rest > 0) ++remote.parked_rest;  // a piece goes back to its others
      }
      remote.batches.pop_back();
    }
  }
  // It holds nothing now that others could wait for.
  working_set.release();
}

std::size_t ClusterCursor::open_remotes() const noexcept {
  std::size_t open = 0;
  for (const RemoteCursor& remote : remotes) open += remote.id != 0 ? 1 : 0;
  return open;
}

}  // namespace spillway
