// What a seed decides before anything runs.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/support/sim_world.h"

namespace spillway::test {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15u + 7) {}
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool percent(int chance) { return between(0, 99) < chance; }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(list.size()) - 1))];
  }
  std::uint64_t seed() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

constexpr int sums_per_shard = 4;  // documents of app.sums

struct Setting {
  std::uint64_t seed;
  bool lossy;        // connections and shards may break; otherwise everything is only slow
  bool replica_set;  // shards take transaction numbers
  std::size_t shards, workers, clients;
  int span;        // documents on each shard
  int operations;  // of each client
  std::size_t text_bytes;
  std::uint64_t memory_limit_bytes;  // 0: none
  bool parks;                        // idle cursors' documents are compressed
  bool slow_clients;                 // some of them stall
  bool compresses;                   // some clients do
  bool hoarder;                      // another user fills the tables that all share
  FaultOptions faults;
};

Setting draw_setting(std::uint64_t seed);
std::string describe(const Setting& setting);  // in a line
SimWorldOptions world_options(const Setting& setting);

}  // namespace spillway::test
