// lock_distribution: one run of the lock experiment (bench/locks runs them all). Threads put
// searches, inserts and deletes, 10:10:1, to one table; every value is checked when it comes back,
// and the number of entries at the end. Prints one JSON object; exit code 1 if a value or the count
// was wrong.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <thread>

#include "bench/experiments/lock_tables.h"
#include "bench/experiments/small_tools.h"

namespace spillway::bench {
namespace {

struct Options {
  std::string discipline = "one lock";
  int threads = 4;
  std::uint64_t requests = 4'200'000;  // of all threads together
  std::uint64_t seed = 1;
  TableShape shape;
};

struct Tally {
  Waited waited;
  std::uint64_t wrong = 0;
  std::int64_t added = 0;  // less what was erased
};

// The key at both ends of the value: a torn or foreign one shows.
void stamp(std::string& value, std::uint64_t key) {
  std::memcpy(value.data(), &key, sizeof key);
  std::memcpy(value.data() + value.size() - sizeof key, &key, sizeof key);
}

bool stamped(const std::string& value, std::uint64_t key) {
  return std::memcmp(value.data(), &key, sizeof key) == 0 &&
         std::memcmp(value.data() + value.size() - sizeof key, &key, sizeof key) == 0;
}

void work(Table& table, const Options& options, int number, Tally& tally) {
  std::uint64_t random = hash_of(options.seed * 1000 + static_cast<std::uint64_t>(number)) | 1;
  std::string value(options.shape.value_bytes, 'v');
  const auto threads = static_cast<std::uint64_t>(options.threads);
  for (std::uint64_t left = options.requests / threads; left > 0; --left) {
    const std::uint64_t key = next_random(random) % options.shape.keys;
    const std::uint64_t kind = next_random(random) % 21;
    if (kind < 10) {
      if (table.search(key, value.data(), tally.waited) && !stamped(value, key)) ++tally.wrong;
    } else if (kind < 20) {
      stamp(value, key);
      tally.added += table.insert(key, value.data(), tally.waited) ? 1 : 0;
    } else {
      tally.added -= table.erase(key, tally.waited) ? 1 : 0;
    }
  }
}

int run(const Options& options) {
  const auto table = make_table(options.discipline, options.shape);
  std::vector<Tally> tallies(static_cast<std::size_t>(options.threads));
  std::barrier start(options.threads + 1);
  std::vector<std::jthread> threads;
  for (int number = 0; number < options.threads; ++number) {
    threads.emplace_back([&, number] {
      Tally mine;  // on its own stack: no line is shared
      start.arrive_and_wait();
      work(*table, options, number, mine);
      tallies[static_cast<std::size_t>(number)] = mine;
    });
  }
  start.arrive_and_wait();
  const std::uint64_t began = clock_ns();
  threads.clear();
  const double elapsed_s = static_cast<double>(clock_ns() - began) / 1e9;
  Tally all;
  for (const Tally& tally : tallies) {
    all.waited.ns += tally.waited.ns;
    all.waited.times += tally.waited.times;
    all.wrong += tally.wrong;
    all.added += tally.added;
  }
  all.waited.ns += table->inner_wait_ns();
  const auto expected = static_cast<std::size_t>(std::max<std::int64_t>(0, all.added));
  const bool count_right = table->entries() == expected;
  std::printf(
      "{\"discipline\": \"%s\", \"threads\": %d, \"requests\": %llu, \"elapsed_s\": %.4f, "
      "\"wait_s_per_thread\": %.5f, \"waits\": %llu, \"entries\": %zu, \"growths\": %llu, "
      "\"conflicts\": %llu, \"wrong\": %llu}\n",
      options.discipline.c_str(), options.threads,
      static_cast<unsigned long long>(options.requests), elapsed_s,
      static_cast<double>(all.waited.ns) / 1e9 / options.threads,
      static_cast<unsigned long long>(all.waited.times), table->entries(),
      static_cast<unsigned long long>(table->growths()),
      static_cast<unsigned long long>(table->conflicts()),
      static_cast<unsigned long long>(all.wrong));
  if (!count_right) {
    std::fprintf(stderr, "lock_distribution: %zu entries, %zu expected\n", table->entries(),
                 expected);
  }
  return all.wrong == 0 && count_right ? 0 : 1;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  spillway::bench::Options options;
  CLI::App app("One run of the lock experiment.");
  std::vector<std::string> names;
  for (const auto name : spillway::bench::table_disciplines()) names.emplace_back(name);
  app.add_option("--discipline", options.discipline)->check(CLI::IsMember(names));
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 256));
  app.add_option("--requests", options.requests, "of all threads together")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  app.add_option("--keys", options.shape.keys)
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 24));
  app.add_option("--value-bytes", options.shape.value_bytes)
      ->check(CLI::Range(std::size_t{16}, std::size_t{1} << 20));
  app.add_option("--buckets", options.shape.buckets, "at the start")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 24));
  app.add_option("--seed", options.seed);
  CLI11_PARSE(app, argc, argv);
  return spillway::bench::run(options);
}
