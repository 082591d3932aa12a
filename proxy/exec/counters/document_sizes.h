// The sizes of collections' documents, as cursors have seen them. A new cursor asks its shards for no more than it has
// room for, and large reads do not take the connections that are kept for point operations. One per worker; its thread
// only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "allocator/limits.h"
#include "cursor/document_size.h"

namespace spillway::exec {

class DocumentSizes {
 public:
  // Not known(): a collection that no cursor has read yet.
  DocumentSize of(std::string_view ns) const {
    const auto found = sizes_.find(key(ns));
    return found == sizes_.end() ? DocumentSize() : found->second;
  }
  void learn(std::string_view ns, const DocumentSize& size) {
    if (!size.known()) return;
    if (const auto found = sizes_.find(key(ns)); found != sizes_.end()) return found->second.learn(size);
    if (sizes_.size() >= collections_max) sizes_.clear();
    sizes_.emplace(std::string(ns), size);
  }
  void learn_mean(std::string_view ns, double mean_bytes) { learn(ns, {.mean_bytes = mean_bytes}); }
  // What is known was far too little.
  void distrust(std::string_view ns) {
    if (const auto found = sizes_.find(key(ns)); found != sizes_.end()) found->second.distrust();
  }
  // May a reply of up to `documents` documents be a large one, as far as is known? One document: never.
  bool may_be_large(std::string_view ns, std::int64_t documents) const {
    if (documents <= 1) return false;
    const DocumentSize known = of(ns);
    return (known.known() ? known.mean_bytes : unknown_mean_bytes) * static_cast<double>(documents) >=
           static_cast<double>(limits::reply_complete_bytes_max);
  }

 private:
  static absl::string_view key(std::string_view ns) { return {ns.data(), ns.size()}; }

  static constexpr std::size_t collections_max = 10'000;
  static constexpr double unknown_mean_bytes =
      16 * 1024;  // the first batch of a collection not seen yet counts as large
  absl::flat_hash_map<std::string, DocumentSize> sizes_;
};

}  // namespace spillway::exec
