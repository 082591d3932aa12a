#include "proxy/exec/core/wire_version.h"

#include <algorithm>
#include <limits>

namespace spillway::exec {

namespace {

// 8.0's: every command that drivers gate by a lower version is implemented.
constexpr std::int32_t wire_version_implemented = 25;
// Before any shard has answered: the version of the oldest supported shard (4.2).
constexpr std::int32_t wire_version_fallback = 8;

}  // namespace

std::int32_t advertised_wire_version(const shard::Gateway& gateway) {
  std::int32_t lowest = std::numeric_limits<std::int32_t>::max();
  for (const shard::ShardState& shard : gateway.states()) {
    if (shard.max_wire_version > 0) lowest = std::min(lowest, shard.max_wire_version);
  }
  if (lowest == std::numeric_limits<std::int32_t>::max()) return wire_version_fallback;
  return std::min(lowest, wire_version_implemented);
}

std::string_view emulated_version(const shard::Gateway& gateway) {
  const std::int32_t wire = advertised_wire_version(gateway);
  if (wire >= 25) return "8.0.0";
  if (wire >= 21) return "7.0.0";
  if (wire >= 17) return "6.0.0";
  if (wire >= 13) return "5.0.0";
  if (wire >= 9) return "4.4.0";
  return "4.2.0";
}

}  // namespace spillway::exec
