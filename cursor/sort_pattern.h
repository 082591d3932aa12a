// The order keys of documents under a sort, for the merge of sorted streams (loser_tree.h).
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
// merge.
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
  // Missing is null, an empty array undefined. A sort by _id alone takes an array there as a whole. Errors: BadValue(2)
  // for arrays on two paths; 16746 for a position that is also a name in the array's documents;
  // CommandNotSupported(115) for $meta. `out` is unchanged by an error.
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

}  // namespace spillway
