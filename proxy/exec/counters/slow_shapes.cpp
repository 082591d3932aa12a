#include "proxy/exec/counters/slow_shapes.h"

#include <algorithm>

namespace spillway::exec {

void SlowShapes::add(SlowShape operation) {
  for (std::string* name : {&operation.ns, &operation.shape}) {
    if (name->size() > name_bytes_max) *name = name->substr(0, name_bytes_max);
  }
  const MutexLock lock(mutex_);
  Name name(operation.ns, operation.shape);
  const auto found = shapes_.find(name);
  if (found != shapes_.end()) {
    SlowShape& all = found->second;
    all.count += operation.count;
    all.failed += operation.failed;
    all.total_us += operation.total_us;
    all.max_us = std::max(all.max_us, operation.max_us);
    all.shards_us += operation.shards_us;
    all.shard_calls += operation.shard_calls;
    all.reply_bytes += operation.reply_bytes;
    return;
  }
  if (shapes_.size() == shapes_max) {
    shapes_.erase(std::min_element(shapes_.begin(), shapes_.end(), [](const auto& a, const auto& b) {
      return a.second.total_us < b.second.total_us;
    }));
    ++forgotten_;
  }
  shapes_.emplace(std::move(name), std::move(operation));
}

std::vector<SlowShape> SlowShapes::slowest(std::size_t most) const {
  std::vector<SlowShape> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, shape] : shapes_) all.push_back(shape);
  }
  const std::size_t count = std::min(most, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                    [](const SlowShape& a, const SlowShape& b) { return a.total_us > b.total_us; });
  all.resize(count);
  return all;
}

std::int64_t SlowShapes::forgotten() const {
  const MutexLock lock(mutex_);
  return forgotten_;
}

}  // namespace spillway::exec
