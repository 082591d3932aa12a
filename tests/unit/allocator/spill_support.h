// What tests of spilling share: bytes that compress and bytes that do not, a file in memory that
// fails on demand.
#pragma once

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "allocator/spill.h"

namespace spillway::test {

using ByteVector = std::vector<std::uint8_t>;

inline ByteVector random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 dice(seed);
  ByteVector bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(dice());
  return bytes;
}

// Compresses about fourfold.
inline ByteVector text_bytes(std::size_t count, unsigned seed) {
  std::mt19937 dice(seed);
  ByteVector bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>("abcd"[dice() % 4]);
  return bytes;
}

inline Buffer buffer_of(MemoryBudget& budget, const ByteVector& bytes) {
  auto buffer = Buffer::allocate(budget, bytes.size());
  if (!buffer) throw std::runtime_error("the test's budget is too small");
  buffer->append(bytes.data(), bytes.size());
  return *std::move(buffer);
}

// A disk of the test's own: what it holds outlives the store's file.
struct FakeDisk {
  std::mutex mutex;
  std::condition_variable changed;
  ByteVector bytes;
  std::map<std::uint64_t, std::uint64_t> holes;  // punched: offset to bytes
  int write_error = 0, read_error = 0;           // errno
  std::size_t step_max = SIZE_MAX;               // a call moves no more than this
  std::size_t room = SIZE_MAX;                   // writing beyond this offset: ENOSPC
  std::int64_t writes_left = INT64_MAX;          // then write_error_later
  int write_error_later = ENOSPC;
  bool stuck = false;  // calls wait
  int waiting = 0;
  int interruptions = 0;  // calls that give EINTR first
  std::uint64_t writes = 0, reads = 0, punched_bytes = 0;

  void set_stuck(bool now) {
    const std::lock_guard lock(mutex);
    stuck = now;
    changed.notify_all();
  }
  void wait_until_stuck() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return waiting > 0; });
  }
};

class FakeFile final : public SpillFile {
 public:
  explicit FakeFile(FakeDisk& disk, bool tmpfs = false) : disk_(disk), tmpfs_(tmpfs) {}

  ssize_t write(std::span<const std::uint8_t> from, std::uint64_t offset) override {
    std::unique_lock lock(disk_.mutex);
    wait(lock);
    if (disk_.interruptions > 0) return --disk_.interruptions, -EINTR;
    if (disk_.write_error != 0) return -disk_.write_error;
    if (disk_.writes_left-- <= 0) return -disk_.write_error_later;
    const std::size_t room = offset < disk_.room ? disk_.room - offset : 0;
    const std::size_t count = std::min({from.size(), disk_.step_max, room});
    if (count == 0) return -ENOSPC;
    if (disk_.bytes.size() < offset + count) disk_.bytes.resize(offset + count);
    std::memcpy(disk_.bytes.data() + offset, from.data(), count);
    ++disk_.writes;
    return static_cast<ssize_t>(count);
  }
  ssize_t read(std::span<std::uint8_t> into, std::uint64_t offset) override {
    std::unique_lock lock(disk_.mutex);
    wait(lock);
    if (disk_.interruptions > 0) return --disk_.interruptions, -EINTR;
    if (disk_.read_error != 0) return -disk_.read_error;
    if (offset >= disk_.bytes.size()) return 0;
    const std::size_t count = std::min({into.size(), disk_.step_max, disk_.bytes.size() - offset});
    std::memcpy(into.data(), disk_.bytes.data() + offset, count);
    ++disk_.reads;
    return static_cast<ssize_t>(count);
  }
  int punch(std::uint64_t offset, std::uint64_t bytes) override {
    const std::lock_guard lock(disk_.mutex);
    const std::uint64_t end = std::min<std::uint64_t>(offset + bytes, disk_.bytes.size());
    if (offset < end) std::memset(disk_.bytes.data() + offset, 0, end - offset);
    disk_.punched_bytes += bytes;
    return 0;
  }
  int truncate(std::uint64_t bytes) override {
    const std::lock_guard lock(disk_.mutex);
    disk_.bytes.resize(bytes);
    return 0;
  }
  bool on_tmpfs() const override { return tmpfs_; }

 private:
  void wait(std::unique_lock<std::mutex>& lock) {
    ++disk_.waiting;
    disk_.changed.notify_all();
    disk_.changed.wait(lock, [this] { return !disk_.stuck; });
    --disk_.waiting;
  }
  FakeDisk& disk_;
  bool tmpfs_;
};

}  // namespace spillway::test
