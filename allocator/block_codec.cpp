#include "allocator/block_codec.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <vector>

namespace spillway {

namespace {

constexpr int level = 1;

// Keeping a block compressed pays if it saves an eighth.
bool gains(std::size_t stored_bytes, std::size_t raw_bytes) noexcept {
  return stored_bytes <= raw_bytes - raw_bytes / 8;
}

std::uint64_t load_word(const std::uint8_t* at, std::size_t bytes) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

}  // namespace

std::uint64_t checksum64(std::span<const std::uint8_t> bytes, std::uint64_t seed) noexcept {
  // Odd constants from the golden ratio and the square roots of 3 and 5.
  constexpr std::uint64_t a = 0x9e3779b97f4a7c15, b = 0xbb67ae8584caa73b, c = 0x3c6ef372fe94f82b;
  std::uint64_t one = seed * a + bytes.size(), two = seed ^ b;
  const auto mix = [](std::uint64_t lane, std::uint64_t word) {
    return std::rotl((lane ^ word) * a, 29) * b;
  };
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  // Two lanes, so that their multiplications overlap.
  for (; left >= 16; left -= 16, at += 16) {
    one = mix(one, load_word(at, 8));
    two = mix(two, load_word(at + 8, 8));
  }
  for (; left > 0;) {
    const std::size_t step = std::min<std::size_t>(left, 8);
    one = mix(one, load_word(at, step));
    at += step;
    left -= step;
  }
  std::uint64_t sum = (one ^ std::rotl(two, 32)) * c;
  sum = (sum ^ sum >> 29) * a;
  return sum ^ sum >> 32;
}

struct BlockCodec::Contexts {
  Contexts()
      : compressor(ZSTD_createCCtx()),
        decompressor(ZSTD_createDCtx()),
        scratch(ZSTD_compressBound(block_bytes_max)) {}
  ~Contexts() {
    ZSTD_freeCCtx(compressor);
    ZSTD_freeDCtx(decompressor);
  }
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;

  ZSTD_CCtx* compressor;
  ZSTD_DCtx* decompressor;
  std::vector<std::uint8_t> scratch;
};

BlockCodec::BlockCodec() = default;
BlockCodec::~BlockCodec() = default;

BlockCodec::Encoded BlockCodec::encode(std::span<const std::uint8_t> raw, std::uint64_t seed) {
  assert(!raw.empty() && raw.size() <= block_bytes_max);
  if (!contexts_) contexts_ = std::make_unique<Contexts>();
  std::vector<std::uint8_t>& scratch = contexts_->scratch;
  Encoded encoded{raw, {}};
  if (contexts_->compressor != nullptr) {
    const std::size_t bytes = ZSTD_compressCCtx(contexts_->compressor, scratch.data(),
                                                scratch.size(), raw.data(), raw.size(), level);
    if (ZSTD_isError(bytes) == 0 && gains(bytes, raw.size())) {
      encoded.bytes = {scratch.data(), bytes};
      encoded.info.compressed = true;
    }
  }
  encoded.info.raw_bytes = static_cast<std::uint32_t>(raw.size());
  encoded.info.stored_bytes = static_cast<std::uint32_t>(encoded.bytes.size());
  encoded.info.checksum = checksum64(encoded.bytes, seed);
  return encoded;
}

bool BlockCodec::decode(const BlockInfo& info, std::span<const std::uint8_t> stored,
                        std::uint64_t seed, std::span<std::uint8_t> into) {
  assert(stored.size() == info.stored_bytes && into.size() == info.raw_bytes);
  if (checksum64(stored, seed) != info.checksum) return false;
  if (!info.compressed) {
    if (stored.size() != into.size()) return false;
    std::memcpy(into.data(), stored.data(), stored.size());
    return true;
  }
  if (!contexts_) contexts_ = std::make_unique<Contexts>();
  if (contexts_->decompressor == nullptr) return false;
  const std::size_t bytes = ZSTD_decompressDCtx(contexts_->decompressor, into.data(), into.size(),
                                                stored.data(), stored.size());
  return ZSTD_isError(bytes) == 0 && bytes == into.size();
}

}  // namespace spillway
