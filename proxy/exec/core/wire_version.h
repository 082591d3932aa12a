// The versions that this proxy reports to clients.
#pragma once

#include <cstdint>
#include <string_view>

#include "proxy/shard/gateway.h"

namespace spillway::exec {

// maxWireVersion: the lower of this proxy's and those of all known shards.
std::int32_t advertised_wire_version(const shard::Gateway& gateway);
// The version that clients see (buildInfo, serverStatus) is that of the wire protocol's features: drivers gate by
// maxWireVersion, shells and tools by this string.
std::string_view emulated_version(const shard::Gateway& gateway);

}  // namespace spillway::exec
