#include "tests/sim/swarm_setting.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/sim_support.h"

namespace spillway::test {

Setting draw_setting(std::uint64_t seed) {
  Dice dice(seed);
  Setting setting{};
  setting.seed = seed;
  setting.lossy = seed % 3 != 0;
  setting.replica_set = dice.percent(50);
  setting.shards = static_cast<std::size_t>(dice.between(1, 4));
  setting.workers = static_cast<std::size_t>(dice.between(1, 2));
  setting.clients = static_cast<std::size_t>(dice.between(2, 6));
  setting.span = static_cast<int>(dice.between(5, 40));
  setting.operations = static_cast<int>(dice.between(8, 20));
  setting.faults = FaultOptions::swarm(seed);
  const bool drips = setting.faults.read_bytes_max > 0 || setting.faults.write_bytes_max > 0;
  setting.text_bytes = static_cast<std::size_t>(drips ? dice.between(0, 50) : dice.between(0, 500));
  if (!drips && dice.percent(20)) setting.text_bytes = 20'000;  // batches that stream
  if (dice.percent(25)) {
    setting.memory_limit_bytes = static_cast<std::uint64_t>(dice.between(1, 8)) * limits::mib;
  }
  setting.parks = dice.percent(25);
  setting.slow_clients = dice.percent(30);
  setting.compresses = dice.percent(25);
  setting.hoarder = dice.percent(25);
  if (setting.faults.write_bytes_max > 0 && setting.faults.write_bytes_max < 16) {
    // By the write: with more, no message would come through.
    setting.faults.reset_permille = std::min(setting.faults.reset_permille, 1u);
    setting.faults.half_close_permille = std::min(setting.faults.half_close_permille, 1u);
  }
  if (!setting.lossy) {
    setting.faults.refuse_percent = 0;
    setting.faults.reset_permille = 0;
    setting.faults.half_close_permille = 0;
  }
  return setting;
}

std::string describe(const Setting& setting) {
  const FaultOptions& faults = setting.faults;
  return fmt::format(
      "{}, {} shards{}, {} workers, {} clients x {} operations, {} documents per shard of {} "
      "bytes; latency {} us, "
      "partial {}/{} %, blocks {} %, refuses {} %, resets {}, half-closes {}, stalls {} permille, "
      "bytes {}/{}; limit {} MiB{}{}{}{}",
      setting.lossy ? "lossy" : "slow", setting.shards,
      setting.replica_set ? " (replica sets)" : "", setting.workers, setting.clients,
      setting.operations, setting.span, setting.text_bytes, faults.latency_max.count() / 1000,
      faults.partial_read_percent, faults.partial_write_percent, faults.would_block_percent,
      faults.refuse_percent, faults.reset_permille, faults.half_close_permille,
      faults.stall_permille, faults.read_bytes_max, faults.write_bytes_max,
      setting.memory_limit_bytes / limits::mib, setting.parks ? ", parks" : "",
      setting.slow_clients ? ", slow clients" : "", setting.compresses ? ", compresses" : "",
      setting.hoarder ? ", a hoarder" : "");
}

SimWorldOptions world_options(const Setting& setting) {
  Dice dice(setting.seed + 1);
  SimShardOptions like;
  if (setting.replica_set) like.set_name = "rs";
  SimWorldOptions options;
  options.shards = shard_list(setting.shards, like);
  for (SimShardOptions& shard : options.shards) {
    using SortKeys = SimShardOptions::SortKeys;
    static const std::vector<SortKeys> forms = {SortKeys::none, SortKeys::object, SortKeys::array,
                                                SortKeys::array};
    shard.sort_keys = dice.one_of(forms);
    shard.ends_with_empty_batch = dice.percent(30);
  }
  options.workers = setting.workers;
  options.routing = "  collections:\n" +
                    ranged_collection("app.docs", setting.shards, setting.span) +
                    ranged_collection("app.sums", setting.shards, sums_per_shard) +
                    "    - {ns: app.log, key: {_id: hashed}}\n";
  options.faults = setting.faults;
  options.cursor_timeout_ms = 120'000;
  options.order_seed = setting.seed + 5;
  options.memory_limit_bytes = setting.memory_limit_bytes;
  if (setting.parks) {
    options.spill_file = [] { return std::unique_ptr<SpillFile>(); };
    options.spill_idle_ms = 500;
  }
  options.gateway.pool_max = static_cast<std::size_t>(dice.percent(50) ? dice.between(1, 6) : 100);
  return options;
}

}  // namespace spillway::test
