// MD5 of many short messages at once, one in each lane of vector registers: a fraction of the time of one after the
// other, since each step of MD5 waits for the step before. (No library of Debian has this.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace spillway {

class Md5Lanes {
 public:
  static constexpr std::size_t lanes = 16;
  // Of one message: what one block of MD5 holds beside a 1 bit and the length.
  static constexpr std::size_t bytes_max = 64 - 9;

  // Each lane has one message before finish(), or is unused. REQUIRES: lane < lanes, message.size() <= bytes_max.
  void put(std::size_t lane, std::span<const std::uint8_t> message) noexcept {
    std::array<std::uint32_t, words> block{};
    if (!message.empty()) std::memcpy(block.data(), message.data(), message.size());
    const std::size_t last = message.size() / 4;  // has the 1 bit
    block[last] |= std::uint32_t{0x80} << (8 * (message.size() % 4));
    for (std::size_t i = 0; i <= last; ++i) words_[i][lane] = block[i];
    words_[words - 2][lane] = static_cast<std::uint32_t>(8 * message.size());
  }
  // The first eight bytes of each digest, little-endian. Once.
  std::array<std::int64_t, lanes> finish() const noexcept;

 private:
  static constexpr std::size_t words = 16;

  alignas(64) std::array<std::array<std::uint32_t, lanes>, words> words_{};
};

}  // namespace spillway
