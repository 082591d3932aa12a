// The tables of the lock experiment: one chained hash table under several lock disciplines,
// abseil's containers, and the project's cursor registry. Values are 8 KB copied in and out while
// whatever protects them is held.
//
// Every table is thread-safe; each call says in `waited` how long it stood before a lock that
// another thread held.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::bench {

struct Waited {
  std::uint64_t times = 0;
  std::uint64_t ns = 0;
};

inline std::uint64_t clock_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// Takes `lock`; the clock is looked at only if it was not free.
template <class Lock>
void take_lock(Lock& lock, Waited& waited) {
  if (lock.try_lock()) return;
  const std::uint64_t before = clock_ns();
  lock.lock();
  waited.ns += clock_ns() - before;
  ++waited.times;
}

template <class Lock>
void take_shared(Lock& lock, Waited& waited) {
  if (lock.try_lock_shared()) return;
  const std::uint64_t before = clock_ns();
  lock.lock_shared();
  waited.ns += clock_ns() - before;
  ++waited.times;
}

// Spreads keys over buckets, halves and stripes alike.
inline std::uint64_t hash_of(std::uint64_t key) noexcept {
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ULL;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebULL;
  return key ^ (key >> 31);
}

struct TableShape {
  std::size_t buckets = 50;  // at the start; doubled beyond `load_most` entries per bucket
  double load_most = 0.7;
  std::size_t value_bytes = 8192;
  std::uint64_t keys = 50'000;  // [0, keys)
};

class Table {
 public:
  Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  virtual ~Table() = default;

  // Copies the value out. False: there is none.
  virtual bool search(std::uint64_t key, char* out, Waited& waited) = 0;
  // Copies the value in, over what was there. True: there was none.
  virtual bool insert(std::uint64_t key, const char* value, Waited& waited) = 0;
  virtual bool erase(std::uint64_t key, Waited& waited) = 0;
  virtual std::size_t entries() const = 0;
  // How often it grew; 0 where the container does so unseen.
  virtual std::uint64_t growths() const { return 0; }
  // Requests given up because another thread had the entry checked out: the registry's alone.
  virtual std::uint64_t conflicts() const { return 0; }
  // Waits inside that no caller saw, in nanoseconds: the registry's alone.
  virtual std::uint64_t inner_wait_ns() const { return 0; }
};

// By name; null: there is no such discipline.
std::unique_ptr<Table> make_table(std::string_view discipline, const TableShape& shape);
const std::vector<std::string_view>& table_disciplines();

// In lock_registry.cpp.
std::unique_ptr<Table> make_registry_table(const TableShape& shape);

}  // namespace spillway::bench
