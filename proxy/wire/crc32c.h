// CRC-32C (Castagnoli), the checksum of OP_MSG.
#pragma once

#include <cstdint>

#include "cursor/bson_view.h"

namespace spillway::wire {

// `seed` is the checksum of the bytes before: crc32c(b, crc32c(a)) == crc32c(a then b). Uses the
// CPU's instruction (SSE 4.2, ARMv8) where it has one. Thread-safe.
std::uint32_t crc32c(Bytes bytes, std::uint32_t seed = 0) noexcept;

// The fallback, table-driven.
std::uint32_t crc32c_portable(Bytes bytes, std::uint32_t seed = 0) noexcept;

}  // namespace spillway::wire
