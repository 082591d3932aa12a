// What whole-message and stepwise compression share.
#pragma once

#include <cstddef>

#include "proxy/wire/compression.h"

namespace spillway::wire::codec {

inline constexpr int zstd_level = 3;

Error size_differs(std::size_t declared);

// Is this a zstd frame whose content fits into `bytes`?
Result<void> check_zstd_frame(const CompressedHeader& header, std::size_t out_bytes);

// The length that a snappy stream begins with; nullopt: there is none.
std::optional<std::uint32_t> take_snappy_length(Bytes& in) noexcept;
// One element of a snappy stream, as far as it fits; false: damaged or incomplete.
bool take_snappy_element(Bytes& in, MutableBytes out, std::size_t& filled) noexcept;

}  // namespace spillway::wire::codec
