#include "proxy/auth/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "cursor/hex.h"

namespace spillway::auth {

namespace {

const EVP_MD* algorithm(Hash hash) noexcept {
  return hash == Hash::sha1 ? EVP_sha1() : EVP_sha256();
}

void require(bool done, const char* what) {
  if (!done) throw std::runtime_error(std::string("OpenSSL has no ") + what);
}

}  // namespace

Digest digest(Hash hash, Bytes text) {
  Digest result;
  unsigned int size = 0;
  require(EVP_Digest(text.data(), text.size(), result.bytes.data(), &size, algorithm(hash),
                     nullptr) == 1,
          "digest");
  result.size = static_cast<std::uint8_t>(size);
  return result;
}

Digest hmac(Hash hash, Bytes key, Bytes text) {
  static constexpr std::uint8_t nothing = 0;  // a null key would mean the previous one
  Digest result;
  unsigned int size = 0;
  require(HMAC(algorithm(hash), key.empty() ? &nothing : key.data(), static_cast<int>(key.size()),
               text.data(), text.size(), result.bytes.data(), &size) != nullptr,
          "HMAC");
  result.size = static_cast<std::uint8_t>(size);
  return result;
}

Digest pbkdf2(Hash hash, std::string_view password, Bytes salt, std::uint32_t iterations) {
  Digest result;
  result.size = static_cast<std::uint8_t>(digest_bytes(hash));
  require(PKCS5_PBKDF2_HMAC(password.data(), static_cast<int>(password.size()), salt.data(),
                            static_cast<int>(salt.size()), static_cast<int>(iterations),
                            algorithm(hash), result.size, result.bytes.data()) == 1,
          "PBKDF2");
  return result;
}

std::string md5_hex(std::string_view text) {
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> bytes;
  unsigned int size = 0;
  require(EVP_Digest(text.data(), text.size(), bytes.data(), &size, EVP_md5(), nullptr) == 1,
          "MD5");
  std::string digits = hex(Bytes(bytes).first(size));
  wipe(bytes.data(), bytes.size());
  return digits;
}

bool same_secret(Bytes a, Bytes b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(MutableBytes into) {
  require(RAND_bytes(into.data(), static_cast<int>(into.size())) == 1, "random bytes");
}

std::string to_base64(Bytes bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // it ends what it writes
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::optional<std::vector<std::uint8_t>> from_base64(std::string_view text) {
  constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  if (text.substr(0, text.size() - padding).find_first_not_of(alphabet) != std::string_view::npos) {
    return std::nullopt;
  }
  std::vector<std::uint8_t> bytes(text.size() / 4 * 3);
  if (bytes.empty()) return bytes;
  const int size =
      EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size()));
  if (size < 0 || static_cast<std::size_t>(size) != bytes.size()) return std::nullopt;
  bytes.resize(bytes.size() - padding);
  if (to_base64(bytes) != text) return std::nullopt;  // unused bits must be 0
  return bytes;
}

std::optional<Digest> digest_from_base64(Hash hash, std::string_view text) {
  const auto bytes = from_base64(text);
  if (!bytes || bytes->size() != digest_bytes(hash)) return std::nullopt;
  Digest digest;
  digest.size = static_cast<std::uint8_t>(bytes->size());
  std::copy(bytes->begin(), bytes->end(), digest.bytes.begin());
  return digest;
}

void wipe(void* memory, std::size_t bytes) noexcept {
  if (bytes > 0) OPENSSL_cleanse(memory, bytes);
}

Secret::Ptr Secret::make(std::string_view text) {
  const std::shared_ptr<Secret> secret(new Secret());
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = (text.size() / page + 1) * page;
  void* const pages =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::runtime_error("no memory is left for a password");
  secret->pages_ = static_cast<char*>(pages);
  secret->mapped_ = bytes;
  secret->size_ = text.size();
  ::madvise(pages, bytes, MADV_DONTDUMP);
  ::mlock(pages, bytes);  // may be refused: then it may be swapped out
  std::copy(text.begin(), text.end(), secret->pages_);
  return secret;
}

Secret::~Secret() {
  if (pages_ == nullptr) return;
  wipe(pages_, size_);
  ::munmap(pages_, mapped_);
}

}  // namespace spillway::auth
