#include "bench/experiments/lock_tables.h"

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <shared_mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace spillway::bench {
namespace {

using Value = std::unique_ptr<char[]>;

Value copy_of(const char* value, std::size_t bytes) {
  Value copy(new char[bytes]);
  std::memcpy(copy.get(), value, bytes);
  return copy;
}

// Hangs all nodes into `count` heads; `chain_of` gives a head's first link. No other thread is in there.
template <class Head, class ChainOf>
void spread(std::vector<Head>& heads, ChainOf chain_of, std::size_t count) {
  std::vector<Head> old(count);
  old.swap(heads);
  for (auto& head : old) {
    auto& from = std::invoke(chain_of, head);
    while (from) {
      auto node = std::move(from);
      from = std::move(node->next);
      auto& chain = std::invoke(chain_of, heads[hash_of(node->key) % count]);
      node->next = std::move(chain);
      chain = std::move(node);
    }
  }
}

// ---- One lock over everything -------------------------------------------------------------------

class OneLock final : public Table {
 public:
  explicit OneLock(const TableShape& shape) : shape_(shape), buckets_(shape.buckets) {}

  bool search(std::uint64_t key, char* out, Waited& waited) override {
    take_lock(mutex_, waited);
    const std::lock_guard guard(mutex_, std::adopt_lock);
    const auto* node = link_to(key)->get();
    if (node == nullptr) return false;
    std::memcpy(out, node->value.get(), shape_.value_bytes);
    return true;
  }
  bool insert(std::uint64_t key, const char* value, Waited& waited) override {
    take_lock(mutex_, waited);
    const std::lock_guard guard(mutex_, std::adopt_lock);
    auto* link = link_to(key);
    if (*link) {
      std::memcpy((*link)->value.get(), value, shape_.value_bytes);
      return false;
    }
    *link = std::make_unique<Node>(Node{key, copy_of(value, shape_.value_bytes), nullptr});
    if (static_cast<double>(++entries_) > shape_.load_most * static_cast<double>(buckets_.size())) {
      grow();
    }
    return true;
  }
  bool erase(std::uint64_t key, Waited& waited) override {
    take_lock(mutex_, waited);
    const std::lock_guard guard(mutex_, std::adopt_lock);
    auto* link = link_to(key);
    if (!*link) return false;
    *link = std::move((*link)->next);
    --entries_;
    return true;
  }
  std::size_t entries() const override { return entries_; }
  std::uint64_t growths() const override { return growths_; }

 private:
  struct Node {
    std::uint64_t key;
    Value value;
    std::unique_ptr<Node> next;
  };

  // The link that holds the key's node, or the null one at the end of its chain.
  std::unique_ptr<Node>* link_to(std::uint64_t key) {
    auto* link = &buckets_[hash_of(key) % buckets_.size()];
    while (*link && (*link)->key != key) link = &(*link)->next;
    return link;
  }
  void grow() {
    spread(buckets_, std::identity(), buckets_.size() * 2);
    ++growths_;
  }

  const TableShape shape_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Node>> buckets_;
  std::size_t entries_ = 0;
  std::uint64_t growths_ = 0;
};

// ---- A lock for each bucket or for each node ----------------------------------------------------
//
// Requests share a lock on the array of buckets; growing takes it alone.

class Growing : public Table {
 public:
  explicit Growing(const TableShape& shape) : shape_(shape) {}
  std::size_t entries() const override { return entries_; }
  std::uint64_t growths() const override { return growths_; }

 protected:
  virtual std::size_t bucket_count() const = 0;
  virtual void rehash(std::size_t buckets) = 0;

  bool crowded() const {
    return static_cast<double>(entries_) > shape_.load_most * static_cast<double>(bucket_count());
  }
  // REQUIRES that the array's lock is not held.
  void grow_if_crowded(Waited& waited) {
    take_lock(array_mutex_, waited);
    const std::lock_guard guard(array_mutex_, std::adopt_lock);
    if (!crowded()) return;
    rehash(bucket_count() * 2);
    ++growths_;
  }

  const TableShape shape_;
  std::shared_mutex array_mutex_;
  std::atomic<std::size_t> entries_{0};
  std::uint64_t growths_ = 0;
};

class BucketLock final : public Growing {
 public:
  explicit BucketLock(const TableShape& shape) : Growing(shape), buckets_(shape.buckets) {}

  bool search(std::uint64_t key, char* out, Waited& waited) override {
    return with_bucket(key, waited, [&](std::unique_ptr<Node>* link) {
      if (!*link) return false;
      std::memcpy(out, (*link)->value.get(), shape_.value_bytes);
      return true;
    });
  }
  bool insert(std::uint64_t key, const char* value, Waited& waited) override {
    bool full = false;
    const bool added = with_bucket(key, waited, [&](std::unique_ptr<Node>* link) {
      if (*link) {
        std::memcpy((*link)->value.get(), value, shape_.value_bytes);
        return false;
      }
      *link = std::make_unique<Node>(Node{key, copy_of(value, shape_.value_bytes), nullptr});
      ++entries_;
      full = crowded();
      return true;
    });
    if (full) grow_if_crowded(waited);
    return added;
  }
  bool erase(std::uint64_t key, Waited& waited) override {
    return with_bucket(key, waited, [&](std::unique_ptr<Node>* link) {
      if (!*link) return false;
      *link = std::move((*link)->next);
      --entries_;
      return true;
    });
  }

 private:
  struct Node {
    std::uint64_t key;
    Value value;
    std::unique_ptr<Node> next;
  };
  struct Bucket {
    std::mutex mutex;
    std::unique_ptr<Node> chain;
  };

  template <class Work>
  bool with_bucket(std::uint64_t key, Waited& waited, const Work& work) {
    take_shared(array_mutex_, waited);
    const std::shared_lock array(array_mutex_, std::adopt_lock);
    Bucket& bucket = buckets_[hash_of(key) % buckets_.size()];
    take_lock(bucket.mutex, waited);
    const std::lock_guard guard(bucket.mutex, std::adopt_lock);
    auto* link = &bucket.chain;
    while (*link && (*link)->key != key) link = &(*link)->next;
    return work(link);
  }
  std::size_t bucket_count() const override { return buckets_.size(); }
  void rehash(std::size_t count) override { spread(buckets_, &Bucket::chain, count); }

  std::vector<Bucket> buckets_;
};

// Hand over hand: a thread on a chain holds the lock of the node before the one it looks at.
class NodeLock final : public Growing {
 public:
  explicit NodeLock(const TableShape& shape) : Growing(shape), heads_(shape.buckets) {}

  bool search(std::uint64_t key, char* out, Waited& waited) override {
    take_shared(array_mutex_, waited);
    const std::shared_lock array(array_mutex_, std::adopt_lock);
    Node* before = walk(key, waited);
    Node* node = before->next.get();
    if (node != nullptr) {
      take_lock(node->mutex, waited);
      before->mutex.unlock();
      std::memcpy(out, node->value.get(), shape_.value_bytes);
      node->mutex.unlock();
    } else {
      before->mutex.unlock();
    }
    return node != nullptr;
  }
  bool insert(std::uint64_t key, const char* value, Waited& waited) override {
    bool full = false, added = false;
    {
      take_shared(array_mutex_, waited);
      const std::shared_lock array(array_mutex_, std::adopt_lock);
      Node* before = walk(key, waited);
      if (Node* node = before->next.get()) {
        take_lock(node->mutex, waited);
        before->mutex.unlock();
        std::memcpy(node->value.get(), value, shape_.value_bytes);
        node->mutex.unlock();
      } else {
        before->next = std::make_unique<Node>();
        before->next->key = key;
        before->next->value = copy_of(value, shape_.value_bytes);
        before->mutex.unlock();
        ++entries_;
        added = true;
        full = crowded();
      }
    }
    if (full) grow_if_crowded(waited);
    return added;
  }
  bool erase(std::uint64_t key, Waited& waited) override {
    take_shared(array_mutex_, waited);
    const std::shared_lock array(array_mutex_, std::adopt_lock);
    Node* before = walk(key, waited);
    const std::lock_guard guard(before->mutex, std::adopt_lock);
    if (!before->next) return false;
    take_lock(before->next->mutex, waited);  // no thread is in it, and none can come
    before->next->mutex.unlock();
    auto gone = std::move(before->next);
    before->next = std::move(gone->next);
    --entries_;
    return true;
  }

 private:
  struct Node {
    std::mutex mutex;
    std::uint64_t key = 0;
    Value value;
    std::unique_ptr<Node> next;
  };

  // The node, locked, after which the key's stands or would.
  Node* walk(std::uint64_t key, Waited& waited) {
    Node* before = &heads_[hash_of(key) % heads_.size()];
    take_lock(before->mutex, waited);
    while (before->next && before->next->key != key) {
      Node* node = before->next.get();
      take_lock(node->mutex, waited);
      before->mutex.unlock();
      before = node;
    }
    return before;
  }
  std::size_t bucket_count() const override { return heads_.size(); }
  void rehash(std::size_t count) override { spread(heads_, &Node::next, count); }

  std::vector<Node> heads_;
};

// ---- Several tables, by the key's hash ----------------------------------------------------------

template <class Part, std::size_t count>
class Divided final : public Table {
 public:
  explicit Divided(const TableShape& shape) {
    for (auto& part : parts_) part = std::make_unique<Part>(shape);
  }
  bool search(std::uint64_t key, char* out, Waited& waited) override {
    return part_of(key).search(key, out, waited);
  }
  bool insert(std::uint64_t key, const char* value, Waited& waited) override {
    return part_of(key).insert(key, value, waited);
  }
  bool erase(std::uint64_t key, Waited& waited) override { return part_of(key).erase(key, waited); }
  std::size_t entries() const override {
    std::size_t sum = 0;
    for (const auto& part : parts_) sum += part->entries();
    return sum;
  }
  std::uint64_t growths() const override {
    std::uint64_t sum = 0;
    for (const auto& part : parts_) sum += part->growths();
    return sum;
  }

 private:
  // The upper bits: the lower ones choose the bucket.
  Part& part_of(std::uint64_t key) { return *parts_[(hash_of(key) >> 40) % count]; }

  std::array<std::unique_ptr<Part>, count> parts_;
};

// ---- abseil's map under abseil's mutex ----------------------------------------------------------

class AbslMap final : public Table {
 public:
  explicit AbslMap(const TableShape& shape) : shape_(shape) {}

  bool search(std::uint64_t key, char* out, Waited& waited) override {
    const Held held(mutex_, waited);
    const auto found = map_.find(key);
    if (found == map_.end()) return false;
    std::memcpy(out, found->second.get(), shape_.value_bytes);
    return true;
  }
  bool insert(std::uint64_t key, const char* value, Waited& waited) override {
    const Held held(mutex_, waited);
    auto& slot = map_[key];
    if (slot) {
      std::memcpy(slot.get(), value, shape_.value_bytes);
      return false;
    }
    slot = copy_of(value, shape_.value_bytes);
    return true;
  }
  bool erase(std::uint64_t key, Waited& waited) override {
    const Held held(mutex_, waited);
    return map_.erase(key) > 0;
  }
  std::size_t entries() const override { return map_.size(); }

 private:
  class Held {
   public:
    Held(absl::Mutex& mutex, Waited& waited) ABSL_NO_THREAD_SAFETY_ANALYSIS : mutex_(mutex) {
      Named named{mutex};
      take_lock(named, waited);
    }
    ~Held() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.Unlock(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    struct Named {
      absl::Mutex& mutex;
      bool try_lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { return mutex.TryLock(); }
      void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }
    };
    absl::Mutex& mutex_;
  };

  const TableShape shape_;
  absl::Mutex mutex_;
  absl::flat_hash_map<std::uint64_t, Value> map_;
};

using Make = std::function<std::unique_ptr<Table>(const TableShape&)>;

template <class Made>
Make maker() {
  return [](const TableShape& shape) { return std::make_unique<Made>(shape); };
}

const std::map<std::string_view, Make>& makers() {
  static const std::map<std::string_view, Make> all{
      {"one lock", maker<OneLock>()},
      {"lock per node", maker<NodeLock>()},
      {"lock per bucket", maker<BucketLock>()},
      {"two tables, a lock each", maker<Divided<OneLock, 2>>()},
      {"two tables, lock per bucket", maker<Divided<BucketLock, 2>>()},
      {"absl, one mutex", maker<AbslMap>()},
      {"absl, 64 stripes", maker<Divided<AbslMap, 64>>()},
      {"cursor registry", make_registry_table}};
  return all;
}

}  // namespace

std::unique_ptr<Table> make_table(std::string_view discipline, const TableShape& shape) {
  const auto found = makers().find(discipline);
  return found == makers().end() ? nullptr : found->second(shape);
}

const std::vector<std::string_view>& table_disciplines() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> list;
    for (const auto& [name, make] : makers()) list.push_back(name);
    return list;
  }();
  return names;
}

}  // namespace spillway::bench
