// BlockCodec: blocks of bytes, compressed with zstd at level 1 and checked when they come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace spillway {

// What decoding a block needs besides its stored bytes.
struct BlockInfo {
  std::uint32_t raw_bytes = 0;
  std::uint32_t stored_bytes = 0;
  bool compressed = false;     // false: stored as it is, because compression gained too little
  std::uint64_t checksum = 0;  // of the stored bytes, under the seed they were encoded with
};

// Not thread-safe. Holds about 1.5 MiB of its own once it is used.
class BlockCodec {
 public:
  static constexpr std::size_t block_bytes_max = 256UL * 1024;

  BlockCodec();
  ~BlockCodec();
  BlockCodec(const BlockCodec&) = delete;
  BlockCodec& operator=(const BlockCodec&) = delete;

  struct Encoded {
    std::span<const std::uint8_t> bytes;  // of `raw` or of the codec; valid until its next use
    BlockInfo info;
  };
  // decode() needs the same `seed`: it rejects the bytes of another block. REQUIRES 1 <= raw.size() <=
  // block_bytes_max.
  Encoded encode(std::span<const std::uint8_t> raw, std::uint64_t seed);
  // False: the stored bytes are not what encode() gave; `into` is then undefined.
  // REQUIRES stored.size() == info.stored_bytes and into.size() == info.raw_bytes.
  bool decode(const BlockInfo& info, std::span<const std::uint8_t> stored, std::uint64_t seed,
              std::span<std::uint8_t> into);

 private:
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
};

// A 64-bit checksum, which depends on the seed. It finds damage; it is no protection against an attacker.
std::uint64_t checksum64(std::span<const std::uint8_t> bytes, std::uint64_t seed) noexcept;

}  // namespace spillway
