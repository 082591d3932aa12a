// The average sizes of collections' documents, as cursors have seen them. A new cursor asks its shards for no more
// than it has room for, and large reads do not take the connections that are kept for point operations. One per
// worker; its thread only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "allocator/limits.h"

namespace spillway::exec {

class DocumentSizes {
 public:
  // 0: not known.
  double mean(std::string_view ns) const {
    const auto found = means_.find(key(ns));
    return found == means_.end() ? 0 : found->second;
  }
  void learn(std::string_view ns, double mean_document_bytes) {
    if (mean_document_bytes <= 0) return;
    if (const auto found = means_.find(key(ns)); found != means_.end()) {
      found->second = (found->second + mean_document_bytes) / 2;
      return;
    }
    if (means_.size() >= collections_max) means_.clear();
    means_.emplace(std::string(ns), mean_document_bytes);
  }
  // May a reply of up to `documents` documents be a large one, as far as is known? One document: never.
  bool may_be_large(std::string_view ns, std::int64_t documents) const {
    if (documents <= 1) return false;
    const double known = mean(ns);
    return (known > 0 ? known : unknown_mean_bytes) * static_cast<double>(documents) >=
           static_cast<double>(limits::reply_complete_bytes_max);
  }

 private:
  static absl::string_view key(std::string_view ns) { return {ns.data(), ns.size()}; }

  static constexpr std::size_t collections_max = 10'000;
  static constexpr double unknown_mean_bytes =
      16 * 1024;  // the first batch of a collection not seen yet counts as large
  absl::flat_hash_map<std::string, double> means_;
};

}  // namespace spillway::exec
