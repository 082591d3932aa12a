// The order keys of documents under a sort, for the merge of sorted streams (loser_tree.h).
// Pure: no I/O, no clock. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cursor/bson_order.h"
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

  // {} and {$natural: ±1} have no parts and no order. Errors: those of a server for a find's sort.
  static Result<SortPattern> parse(DocView sort);
  // The order of $near: a shard's `$sortKey` is the distance, and the nearest document comes first.
  static SortPattern by_distance();

  const std::vector<Part>& parts() const noexcept { return parts_; }
  bool empty() const noexcept { return parts_.empty(); }
  bool has_meta() const noexcept;

  // Appends the document's key. A path goes through arrays, by position and by element; of several values the one that
  // sorts first counts, for all paths through the same array together. A missing value is null, an empty array is
  // undefined. A sort by _id alone compares arrays as values. Errors: BadValue(2) for arrays on two paths; 16746 for a
  // position that is also a field name in the array's documents; CommandNotSupported(115) for $meta. An error does not
  // change `out`.
  Result<void> append_key(std::string& out, DocView document) const;

  // The same from a shard's `$sortKey`: an object (4.2) or an array (4.4 and later) with a value for each part; a
  // number for by_distance(). Anything else: InternalError(1), and `out` does not change.
  Result<void> append_key_from_sort_key(std::string& out, ValueView sort_key) const;

  // The beginning of either key if it is the whole key (bson_order.h). nullopt: make the key itself, or it is an error.
  std::optional<KeyBeginning> short_key(DocView document) const noexcept;
  std::optional<KeyBeginning> short_key_from_sort_key(ValueView sort_key) const noexcept;

 private:
  std::vector<Part> parts_;
  bool by_distance_ = false;
  bool one_field_ = false;  // its only part is a field that is not inside another
};

}  // namespace spillway
