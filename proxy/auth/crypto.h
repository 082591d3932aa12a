// Hashes, key derivation, random bytes and secrets: the only door to OpenSSL's primitives. Thread-safe.
//
// OpenSSL's failures (out of memory, a provider that lacks a hash) throw std::runtime_error.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"

namespace spillway::auth {

enum class Hash : std::uint8_t { sha1, sha256 };

constexpr std::size_t digest_bytes(Hash hash) noexcept { return hash == Hash::sha1 ? 20 : 32; }

// What a hash gives. Bytes beyond its size are 0, so that equal digests are equal objects.
struct Digest {
  std::array<std::uint8_t, 32> bytes{};
  std::uint8_t size = 0;

  Bytes view() const noexcept { return Bytes(bytes).first(size); }
  bool operator==(const Digest&) const = default;  // not for secrets: see same_secret()
};

inline Bytes bytes_of(std::string_view text) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
inline std::string_view text_of(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Digest digest(Hash hash, Bytes text);
Digest hmac(Hash hash, Bytes key, Bytes text);
// PBKDF2 (RFC 8018) with the hash's HMAC, one block long: takes iterations × a microsecond.
Digest pbkdf2(Hash hash, std::string_view password, Bytes salt, std::uint32_t iterations);
// In lower-case hexadecimal.
std::string md5_hex(std::string_view text);

// Takes the same time wherever the first difference stands. False for different lengths.
bool same_secret(Bytes a, Bytes b) noexcept;
void fill_random(MutableBytes into);

std::string to_base64(Bytes bytes);
// Padded, without line ends; nullopt: not valid base64.
std::optional<std::vector<std::uint8_t>> from_base64(std::string_view text);
// A digest of this hash, in base64; nullopt: not valid base64, or another size.
std::optional<Digest> digest_from_base64(Hash hash, std::string_view text);

// Overwrites memory; never optimised away.
void wipe(void* memory, std::size_t bytes) noexcept;
inline void wipe(std::string& text) noexcept {
  wipe(text.data(), text.size());
  text.clear();
}
inline void wipe(Digest& digest) noexcept { wipe(digest.bytes.data(), digest.bytes.size()); }

// A password: in pages of its own that no core dump holds and, where the system allows it, that are
// not swapped out; overwritten at the end. Shared, never copied.
class Secret {
 public:
  using Ptr = std::shared_ptr<const Secret>;

  // Copies the text; its holder wipes it.
  static Ptr make(std::string_view text);
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret();

  std::string_view text() const noexcept { return {pages_, size_}; }

 private:
  Secret() = default;

  char* pages_ = nullptr;
  std::size_t mapped_ = 0;
  std::size_t size_ = 0;
};

}  // namespace spillway::auth
