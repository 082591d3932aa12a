// ShardList: the shards of a process, as its gateways take them over, each when it comes to them. Only grows; an
// index belongs to one shard for good. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "allocator/mutex.h"
#include "proxy/shard/connection_string.h"
#include "proxy/shard/gateway.h"

namespace spillway::shard {

class ShardList {
 public:
  struct Entry {
    std::string name;
    ConnectionString connection_string;
    ShardCredentials credentials;
    std::shared_ptr<SharedShard> shared;
  };

  // True once: for the gateway that makes the entries.
  bool take_lead() noexcept { return !has_lead_.exchange(true); }
  void add(Entry entry) {
    const MutexLock lock(mutex_);
    entries_.push_back(std::move(entry));
    size_.store(entries_.size(), std::memory_order_release);
  }
  std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  Entry at(std::size_t index) const {
    const MutexLock lock(mutex_);
    return entries_[index];
  }

 private:
  mutable Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::size_t> size_{0};
  std::atomic<bool> has_lead_{false};
};

}  // namespace spillway::shard
