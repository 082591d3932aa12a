// The project's cursor registry as a table: a key's value is a cursor with 8 KB in it. The registry
// draws the ids, so that an array beside it says which id a key has; what is done to a cursor is
// done while it is checked out, without any lock, and a request that comes meanwhile is told so
// (CursorInUse).
#include <cstring>
#include <thread>

#include "absl/base/internal/cycleclock.h"
#include "absl/synchronization/mutex.h"
#include "bench/experiments/lock_tables.h"
#include "cursor/registry.h"

namespace spillway::bench {
namespace {

std::atomic<std::int64_t> profiled_cycles{0};
void count_cycles(std::int64_t cycles) { profiled_cycles.fetch_add(cycles); }

class RegistryTable final : public Table {
 public:
  explicit RegistryTable(const TableShape& shape) : shape_(shape), ids_(shape.keys) {
    // Tells what threads waited once they slept; a process can have one such hook, set once.
    static const bool registered = [] {
      absl::RegisterMutexProfiler(count_cycles);
      return true;
    }();
    (void)registered;
    profiled_cycles = 0;
  }

  bool search(std::uint64_t key, char* out, Waited&) override {
    CursorPtr cursor = check_out(ids_[key]);
    if (!cursor) return false;
    std::memcpy(out, cursor->comment.data(), shape_.value_bytes);
    give_back(std::move(cursor));
    return true;
  }
  bool insert(std::uint64_t key, const char* value, Waited&) override {
    while (true) {
      std::int64_t id = ids_[key];
      if (id > 0) {
        CursorPtr cursor = check_out(id);
        if (!cursor) return false;  // in use, or gone since
        std::memcpy(cursor->comment.data(), value, shape_.value_bytes);
        give_back(std::move(cursor));
        return false;
      }
      // -1: another thread is putting one there.
      if (id < 0 || !ids_[key].compare_exchange_strong(id, -1)) {
        std::this_thread::yield();
        continue;
      }
      auto cursor = std::make_unique<ClusterCursor>();
      cursor->ns = ns;
      cursor->comment.assign(value, shape_.value_bytes);
      ids_[key] = registry_.insert(std::move(cursor), 0);
      ++entries_;
      return true;
    }
  }
  bool erase(std::uint64_t key, Waited&) override {
    std::int64_t id = ids_[key];
    if (id <= 0 || !ids_[key].compare_exchange_strong(id, 0)) return false;
    const auto killed = registry_.kill(id, ns);
    --entries_;
    return killed.outcome != CursorRegistry::KillOutcome::not_found;
  }
  std::size_t entries() const override { return registry_.counts().open_total; }
  std::uint64_t conflicts() const override { return conflicts_; }
  std::uint64_t inner_wait_ns() const override {
    return static_cast<std::uint64_t>(static_cast<double>(profiled_cycles) * 1e9 /
                                      absl::base_internal::CycleClock::Frequency());
  }

 private:
  static constexpr const char* ns = "bench.locks";

  CursorPtr check_out(std::int64_t id) {
    if (id <= 0) return nullptr;
    auto found = registry_.check_out(id, ns, CursorCaller{});
    if (found) return std::move(*found);
    ++conflicts_;
    return nullptr;
  }
  // What was killed meanwhile comes back, and ends here.
  void give_back(CursorPtr cursor) { registry_.check_in(std::move(cursor), 0); }

  const TableShape shape_;
  CursorRegistry registry_;
  std::vector<std::atomic<std::int64_t>> ids_;
  std::atomic<std::size_t> entries_{0};
  std::atomic<std::uint64_t> conflicts_{0};
};

}  // namespace

std::unique_ptr<Table> make_registry_table(const TableShape& shape) {
  return std::make_unique<RegistryTable>(shape);
}

}  // namespace spillway::bench
