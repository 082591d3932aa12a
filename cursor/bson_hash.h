// MongoDB's hash of a BSON value, as used by hashed shard keys and hashed indexes.
#pragma once

#include <cstdint>
#include <span>

#include "cursor/bson_view.h"

namespace spillway {

// First eight bytes of an MD5 as little-endian signed integer. A value of type eoo hashes as null
// (a missing field). Seed 0 for shard keys.
std::int64_t bson_hash64(ValueView value, std::int32_t seed = 0);
// The same of many values, with seed 0. Together short scalars take a seventh of the time. REQUIRES as many `hashes`.
void bson_hash64(std::span<const ValueView> values, std::span<std::int64_t> hashes);

}  // namespace spillway
