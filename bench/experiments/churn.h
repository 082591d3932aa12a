// Memory as a busy MySQL server uses it, scaled down: a buffer pool that stays, sessions that come
// and go with the load, queries that take small pieces, sort buffers, growing results and temporary
// tables, and a table cache whose small pieces outlive queries and are freed by other threads. What
// is asked for depends on the seed alone, so that every heap gets the same.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace spillway::bench {

// Memory on loan, with what the source needs to take it back.
struct Piece {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::size_t block_bytes = 0;
  void* heap = nullptr;
  void* span = nullptr;
};

// Where memory comes from. Thread-safe; take() ends the program if there is none.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual Piece take(std::size_t bytes) = 0;
  virtual void give_back(const Piece& piece) = 0;
  virtual void tick() {}  // a hundred times a second, from one thread
};

struct ChurnOptions {
  std::size_t pool_bytes = std::size_t{512} << 20;
  int threads = 4;
  int sessions = 200;        // of all threads
  int queries_per_tick = 8;  // of each thread, when all sessions are awake
  int table_cache = 4000;    // entries
  std::int64_t ticks = 4000;
  int waves = 4;                   // of load: between a fifth and all of the sessions are awake
  std::int64_t quiet_ticks = 200;  // at the end, with nothing left but the pool and the cache
  std::uint64_t seed = 1;
};

// Reads --option value pairs; exits with a message on a mistake. Runs the churn, and prints a CSV
// line every quarter of a second: ms,tick,live_bytes,rss_bytes,phase and at last "end" with CPU
// seconds. Returns the exit code.
int churn_main(int argc, char** argv, MemorySource& source);

}  // namespace spillway::bench
