#include "bench/experiments/churn.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <numbers>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/experiments/small_tools.h"

namespace spillway::bench {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t page_bytes = 4096, pool_page_bytes = 16 * kib;
constexpr auto tick_length = std::chrono::milliseconds(10);
constexpr std::int64_t ticks_per_sample = 25;
constexpr std::size_t cache_parts = 8;  // pieces of a table cache entry

double cpu_s() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

// Pieces that belong together; counted as live while they are held.
class Holding {
 public:
  Holding(MemorySource& source, std::atomic<std::int64_t>& live) : source_(&source), live_(&live) {}
  Holding(Holding&& other) noexcept
      : source_(other.source_), live_(other.live_), pieces_(std::exchange(other.pieces_, {})) {}
  Holding& operator=(Holding&& other) noexcept {
    std::swap(pieces_, other.pieces_);
    return *this;
  }
  ~Holding() { clear(); }

  void add(std::size_t bytes) {
    pieces_.push_back(source_->take(bytes));
    auto* at = static_cast<volatile char*>(pieces_.back().data);
    for (std::size_t offset = 0; offset < bytes; offset += page_bytes) at[offset] = 1;
    live_->fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  }
  void drop_last() {
    live_->fetch_sub(static_cast<std::int64_t>(pieces_.back().bytes), std::memory_order_relaxed);
    source_->give_back(pieces_.back());
    pieces_.pop_back();
  }
  void clear() {
    while (!pieces_.empty()) drop_last();
  }
  bool empty() const { return pieces_.empty(); }

 private:
  MemorySource* source_;
  std::atomic<std::int64_t>* live_;
  std::vector<Piece> pieces_;
};

class Churn {
 public:
  Churn(const ChurnOptions& options, MemorySource& source)
      : options_(options), source_(source), pool_(source, live_) {
    for (int at = 0; at < options.table_cache; ++at) cache_.emplace_back(source, live_);
  }

  void run() {
    for (std::size_t at = 0; at < options_.pool_bytes; at += pool_page_bytes) {
      pool_.add(pool_page_bytes);
    }
    std::barrier turn(options_.threads + 1);
    std::vector<std::jthread> threads;
    for (int number = 0; number < options_.threads; ++number) {
      threads.emplace_back([&, number] { work(number, turn); });
    }
    const auto start = std::chrono::steady_clock::now();
    const double cpu_before = cpu_s();
    const std::int64_t all = options_.ticks + options_.quiet_ticks;
    for (std::int64_t tick = 0; tick < all; ++tick) {
      turn.arrive_and_wait();  // starts a tick
      turn.arrive_and_wait();  // ends it
      source_.tick();
      if (tick % ticks_per_sample == 0 || tick + 1 == all) {
        sample(start, tick, tick < options_.ticks ? "churn" : "quiet");
      }
      // A tick that took too long moves the later ones.
      const auto due = start + tick_length * (tick + 1);
      std::this_thread::sleep_until(due);
    }
    threads.clear();
    std::printf("end,%.3f\n", cpu_s() - cpu_before);
  }

 private:
  // How many of `all` are awake: a day of the load goes from a fifth to all and back.
  int awake(int all, std::int64_t tick) const {
    const double day =
        static_cast<double>(tick) * options_.waves / static_cast<double>(options_.ticks);
    const double share = 0.6 - 0.4 * std::cos(2 * std::numbers::pi * day);
    return std::max(1, static_cast<int>(std::lround(share * all)));
  }

  void work(int number, std::barrier<>& turn) {
    std::uint64_t random = (options_.seed * 7919 + static_cast<std::uint64_t>(number)) * 2 + 1;
    for (int warm = 0; warm < 20; ++warm) next_random(random);
    std::vector<Holding> sessions;
    const int mine = std::max(1, options_.sessions / options_.threads);
    for (int at = 0; at < mine; ++at) sessions.emplace_back(source_, live_);
    for (std::int64_t tick = 0; tick < options_.ticks + options_.quiet_ticks; ++tick) {
      turn.arrive_and_wait();
      if (tick < options_.ticks) {
        const int up = awake(mine, tick);
        for (int at = up; at < mine; ++at) sessions[static_cast<std::size_t>(at)].clear();
        for (int left = awake(options_.queries_per_tick, tick); left > 0; --left) {
          query(sessions[next_random(random) % static_cast<std::uint64_t>(up)], random);
        }
      } else {
        for (Holding& session : sessions) session.clear();
      }
      turn.arrive_and_wait();
    }
  }

  // What a session's last query held goes; what this one needs is taken.
  void query(Holding& session, std::uint64_t& random) {
    session.clear();
    const auto one_in = [&](std::uint64_t n) { return next_random(random) % n == 0; };
    const auto between = [&](std::size_t least, std::size_t most) {
      return least + next_random(random) % (most - least + 1);
    };
    session.add(16 * kib);  // network buffer
    for (auto left = between(20, 80); left > 0; --left)
      session.add(between(48, 1200));       // parsed query
    if (one_in(3)) session.add(256 * kib);  // sort buffer
    if (one_in(4)) {                        // a result that grows by doubling
      std::size_t size = 16 * kib;
      session.add(size);
      for (auto steps = between(1, 7); steps > 0; --steps) {
        session.drop_last();
        session.add(size *= 2);
      }
    }
    if (one_in(40)) session.add(between(1, 16) * 1024 * kib);  // temporary table
    for (auto left = between(1, 6); left > 0; --left) open_table(random);
  }

  // Replaces an entry of the table cache; its pieces may be another thread's.
  void open_table(std::uint64_t& random) {
    Holding fresh(source_, live_);
    for (std::size_t part = 0; part < cache_parts; ++part) {
      fresh.add(512 + next_random(random) % (7 * kib));
    }
    const auto at = static_cast<std::size_t>(next_random(random) %
                                             static_cast<std::uint64_t>(options_.table_cache));
    const std::lock_guard guard(cache_mutex_[at % cache_mutex_.size()]);
    cache_[at] = std::move(fresh);  // the old entry ends with `fresh`
  }

  void sample(std::chrono::steady_clock::time_point start, std::int64_t tick, const char* phase) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                        std::chrono::steady_clock::now() - start)
                        .count();
    std::printf("%lld,%lld,%lld,%zu,%s\n", static_cast<long long>(ms), static_cast<long long>(tick),
                static_cast<long long>(live_.load()), rss_bytes(), phase);
  }

  const ChurnOptions options_;
  MemorySource& source_;
  std::atomic<std::int64_t> live_{0};
  Holding pool_;
  std::array<std::mutex, 64> cache_mutex_;
  std::vector<Holding> cache_;
};

// Ends the program unless `text` is a whole number of [1, most].
std::int64_t number_of(const char* name, const char* text, std::int64_t most) {
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || value < 1 || value > most) {
    std::fprintf(stderr, "churn: %s must be a number from 1 to %lld\n", name,
                 static_cast<long long>(most));
    std::exit(2);
  }
  return value;
}

}  // namespace

int churn_main(int argc, char** argv, MemorySource& source) {
  ChurnOptions options;
  for (int at = 1; at < argc; at += 2) {
    const std::string_view name = argv[at];
    if (at + 1 == argc) {
      std::fprintf(stderr, "churn: %s needs a value\n", argv[at]);
      return 2;
    }
    const char* text = argv[at + 1];
    if (name == "--ticks") {
      options.ticks = number_of("--ticks", text, 1'000'000'000);
    } else if (name == "--quiet-ticks") {
      options.quiet_ticks = number_of("--quiet-ticks", text, 1'000'000);
    } else if (name == "--pool-mib") {
      options.pool_bytes = static_cast<std::size_t>(number_of("--pool-mib", text, 1 << 20)) << 20;
    } else if (name == "--waves") {
      options.waves = static_cast<int>(number_of("--waves", text, 10'000));
    } else if (name == "--seed") {
      options.seed = static_cast<std::uint64_t>(number_of("--seed", text, 1 << 30));
    } else {
      std::fprintf(stderr, "churn: no option %s\n", argv[at]);
      return 2;
    }
  }
  std::make_unique<Churn>(options, source)->run();
  return 0;
}

}  // namespace spillway::bench
