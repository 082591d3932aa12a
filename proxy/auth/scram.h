// SCRAM (RFC 5802, RFC 7677), both ends, without I/O: messages in, messages out. Hashes: SCRAM-SHA-1 and
// SCRAM-SHA-256; no channel binding, as in MongoDB.
//
// An object belongs to one thread at a time. An error does not reveal whether the user or the password was wrong.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/mutex.h"
#include "cursor/error.h"
#include "proxy/auth/crypto.h"

namespace spillway::auth {

inline constexpr std::size_t scram_message_bytes_max = 4096;
inline constexpr std::size_t scram_nonce_bytes_max = 1024;
inline constexpr std::size_t scram_salt_bytes_max = 256;
inline constexpr std::size_t user_name_bytes_max = 1024;
inline constexpr std::size_t password_bytes_max = 4096;
inline constexpr std::uint32_t scram_iterations_min = 4096;  // RFC 7677, and drivers' specification
// What a server may make its client compute: about half a second.
inline constexpr std::uint32_t scram_iterations_max = 1'000'000;

// "SCRAM-SHA-1" or "SCRAM-SHA-256".
std::string_view mechanism_name(Hash hash) noexcept;
std::optional<Hash> scram_mechanism(std::string_view name) noexcept;
// The default of MongoDB's servers for a new user.
std::uint32_t preset_iterations(Hash hash) noexcept;
std::size_t preset_salt_bytes(Hash hash) noexcept;

// A server's record of a password: enough to check it, not to recover it.
struct ScramCredentials {
  std::uint32_t iterations = 0;
  std::vector<std::uint8_t> salt;
  Digest stored_key;
  Digest server_key;

  bool operator==(const ScramCredentials&) const = default;
};

// A password as SCRAM takes it: SHA-256 by SASLprep, SHA-1 MongoDB's digest with the user's name.
// BadValue(2): it is not UTF-8, or holds what a password must not.
Result<Secret::Ptr> scram_password(Hash hash, std::string_view user, std::string_view password);
// From the result of scram_password().
ScramCredentials make_credentials(Hash hash, const Secret& password, Bytes salt, std::uint32_t iterations);

// A client's first message. Views into it.
struct ScramClientFirst {
  std::string_view bare;    // without the GS2 header
  std::string_view header;  // "n,,"
  std::string user;
  std::string_view nonce;
};
// ProtocolError(17): not well-formed, too long, or it asks for what is not supported.
Result<ScramClientFirst> parse_client_first(std::string_view message);

// The server's end of one conversation.
class ScramServer {
 public:
  // `credentials`: the user's, or fake ones for an unknown user (known: false), so that no client learns the
  // difference. `nonce`: our half; empty: a random one.
  ScramServer(Hash hash, const ScramClientFirst& first, ScramCredentials credentials, bool known,
              std::string_view nonce = {});

  const std::string& first_message() const noexcept { return server_first_; }
  // The client's last message; the server's is the result. AuthenticationFailed(18), ProtocolError(17).
  Result<std::string> finish(std::string_view message);

 private:
  Hash hash_;
  ScramCredentials credentials_;
  bool known_;
  std::string header_;
  std::string client_first_;  // bare
  std::string nonce_;         // both halves
  std::string server_first_;
};

// Credentials for an unknown user: the same each time, and like those of known users.
ScramCredentials fake_credentials(Hash hash, Bytes key, std::string_view user_id, std::uint32_t iterations);

// A client's computed keys, by salt: a replica set asks for the same one each time, members of a cluster for one each.
// Thread-safe.
class ScramKeyCache {
 public:
  static constexpr std::size_t salts_max = 256;  // beyond it the oldest is replaced

  struct Keys {
    Digest client_key;
    Digest stored_key;
    Digest server_key;
  };
  std::optional<Keys> find(Bytes salt, std::uint32_t iterations) const;
  void keep(Bytes salt, std::uint32_t iterations, const Keys& keys);

 private:
  struct Entry {
    std::vector<std::uint8_t> salt;
    std::uint32_t iterations = 0;
    Secret::Ptr keys;  // the bytes of Keys
  };
  mutable Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // to be replaced
};

// The client's end of one conversation.
class ScramClient {
 public:
  // `password`: of scram_password(). `nonce`: our half; empty: a random one.
  ScramClient(Hash hash, std::string_view user, Secret::Ptr password, std::string_view nonce = {});

  // Looks for keys in the cache first, and stores them there. The cache outlives the conversation.
  void remember_keys(ScramKeyCache& cache) noexcept { cache_ = &cache; }
  const std::string& first_message() const noexcept { return first_; }
  // The server's first message; the result is the client's last message. AuthenticationFailed(18): it is not
  // well-formed, or asks for too little or too much work.
  Result<std::string> answer(std::string_view message);
  // The server's last message: proves that the server knows the password, too. AuthenticationFailed(18).
  Result<void> verify(std::string_view message);

 private:
  Hash hash_;
  Secret::Ptr password_;
  std::string nonce_;
  std::string first_;
  ScramKeyCache* cache_ = nullptr;
  Digest server_signature_;
};

}  // namespace spillway::auth
