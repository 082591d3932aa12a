// CRC-32C (Castagnoli) for the bench documents: the CPU's instruction where it has one, a table
// elsewhere. A running CRC is the raw register: it starts at crc32c_seed and is finished by
// inversion. Source: RFC 3720, appendix B.4 (the test vectors).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace spillway::bench {

constexpr std::uint32_t crc32c_seed = 0xffffffffU;

// Extends the running CRC by `size` bytes.
std::uint32_t crc32c_extend(std::uint32_t running, const void* bytes, std::size_t size) noexcept;

// Extends the running CRC by a number's eight little-endian bytes.
std::uint32_t crc32c_extend_number(std::uint32_t running, std::uint64_t number) noexcept;

// Four runs of the same size at once: the instruction has a latency of three cycles, so that one
// run alone leaves two thirds of the unit idle.
std::array<std::uint32_t, 4> crc32c_four(const std::array<const char*, 4>& from,
                                         std::size_t size) noexcept;

inline std::uint32_t crc32c_finish(std::uint32_t running) noexcept { return ~running; }

// The table version, whatever the CPU: the tests compare both.
std::uint32_t crc32c_extend_by_table(std::uint32_t running, const void* bytes,
                                     std::size_t size) noexcept;

}  // namespace spillway::bench
