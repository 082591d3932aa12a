// Merging sorted streams: the order keys of documents, and a tournament over streams of them.
// Pure: no I/O, no clock. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"

namespace spillway {

// A parsed sort document. Its keys compare bytewise in the order of the sort (bson_order.h), so
// that streams from shards with `$sortKey` and streams keyed from their documents can meet in one
// merge. Source: mongos behaviour reference, section 5.2.
class SortPattern {
 public:
  struct Part {
    std::string path;         // dotted; of a $meta part the output field, which has no meaning
    bool descending = false;  // $meta parts are: best first
    bool meta = false;
  };

  // {} and {$natural: ±1} have no parts and order nothing. Errors: the server's, of a find's sort.
  static Result<SortPattern> parse(DocView sort);
  // The order of a $near: a shard's `$sortKey` is the distance itself, and the nearest come first.
  static SortPattern by_distance();

  const std::vector<Part>& parts() const noexcept { return parts_; }
  bool empty() const noexcept { return parts_.empty(); }
  bool natural() const noexcept { return natural_; }
  bool has_meta() const noexcept;

  // Appends the document's key. A path runs through arrays, by position and implicitly; of the
  // values it meets the one that sorts first counts, for paths through one common array together.
  // Missing is null, an empty array undefined. Errors: BadValue(2) for arrays on two paths; 16746
  // for a position that is also a name in the array's documents; CommandNotSupported(115) for
  // $meta. `out` is unchanged by an error.
  Result<void> append_key(std::string& out, DocView document) const;

  // The same from a shard's `$sortKey`: an object of as many values as parts (4.2) or an array of
  // them (4.4+); of by_distance() a bare number. Anything else is InternalError(1), and `out` is
  // unchanged.
  Result<void> append_key_from_sort_key(std::string& out, ValueView sort_key) const;

 private:
  std::vector<Part> parts_;
  bool natural_ = false;
  bool by_distance_ = false;
};

// Finds the least of N keys again and again in log N comparisons. A stream waits (its next key is
// not known), has a key, or is exhausted. Equal keys: the lower stream wins, so a merge is stable.
//   for each stream: set() or exhaust()
//   while (auto stream = tree.winner()) { take its head; then set(*stream, next key), exhaust() or
//     await() it; }
class LoserTree {
 public:
  explicit LoserTree(std::size_t streams);  // all are waiting; REQUIRES streams > 0

  std::size_t streams() const noexcept { return entries_.size(); }
  void set(std::size_t stream, std::string_view key);  // copies the key
  void exhaust(std::size_t stream);
  void await(std::size_t stream);

  bool exhausted(std::size_t stream) const noexcept {
    return entries_[stream].state == State::exhausted;
  }
  // No stream is waiting: the winner is known.
  bool ready() const noexcept { return waiting_ == 0; }
  // The stream with the least key; nullopt once all are exhausted. REQUIRES ready().
  std::optional<std::size_t> winner();
  std::string_view key(std::size_t stream) const noexcept { return entries_[stream].key; }

 private:
  enum class State : std::uint8_t { waiting, keyed, exhausted };
  struct Entry {
    std::string key;
    State state = State::waiting;
  };
  void change(std::size_t stream, State state);
  bool beats(std::size_t a, std::size_t b) const noexcept;
  void replay(std::size_t stream) noexcept;
  void rebuild();

  std::vector<Entry> entries_;
  // nodes_[0] is the winner; nodes_[i] the loser of the match at inner node i, whose children are
  // 2i and 2i+1; stream s is the leaf streams() + s.
  std::vector<std::size_t> nodes_;
  std::size_t waiting_;
  bool stale_ = true;  // a stream other than the winner changed
};

}  // namespace spillway
