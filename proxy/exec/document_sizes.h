// How large a collection's documents are, on average, as far as cursors over several shards have seen: so that the next
// one asks its shards for no more than it has room for. One per worker; its thread only.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"

namespace spillway::exec {

class DocumentSizes {
 public:
  // 0: not known.
  double mean(const std::string& ns) const {
    const auto found = means_.find(ns);
    return found == means_.end() ? 0 : found->second;
  }
  void learn(const std::string& ns, double mean_document_bytes) {
    if (mean_document_bytes <= 0) return;
    if (means_.size() >= collections_max && !means_.contains(ns)) means_.clear();
    double& mean = means_[ns];
    mean = mean > 0 ? (mean + mean_document_bytes) / 2 : mean_document_bytes;
  }

 private:
  static constexpr std::size_t collections_max = 10'000;
  absl::flat_hash_map<std::string, double> means_;
};

}  // namespace spillway::exec
