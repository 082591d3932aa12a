// $clusterTime: the time that the members of a cluster tell each other, and its signature. No I/O. Source: mongod's
// logical_time_metadata.cpp, time_proof_service.cpp and keys_collection_cache.cpp (4.2).
//
// A time is a BSON timestamp: seconds << 32 | increment.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cursor/bson_writer.h"
#include "cursor/error.h"
#include "proxy/auth/crypto.h"

namespace spillway::auth {

struct ClusterTime {
  std::uint64_t time = 0;
  std::array<std::uint8_t, 20> hash{};
  std::int64_t key_id = 0;

  // Servers send zeros to those whose times they take unchecked.
  bool is_signed() const noexcept { return key_id != 0; }
  bool operator==(const ClusterTime&) const = default;
};

constexpr std::uint32_t seconds_of(std::uint64_t time) noexcept { return static_cast<std::uint32_t>(time >> 32U); }

// The value of a field $clusterTime. Errors as a server's: NoSuchKey(4), TypeMismatch(14), UnsupportedFormat(12),
// BadValue(2), 10065.
Result<ClusterTime> read_cluster_time(ValueView value);
// {"$clusterTime": {clusterTime, signature: {hash, keyId}}}: as many bytes for every time.
inline constexpr std::size_t cluster_time_bytes = 102;
void append_cluster_time(BsonWriter& out, const ClusterTime& time);

// The keys of a cluster: documents of admin.system.keys on its config servers. Never changes once it is shared.
class ClusterKeys {
 public:
  using Ptr = std::shared_ptr<const ClusterKeys>;

  // {_id, purpose: "HMAC", key: BinData(20 bytes), expiresAt: Timestamp}; other purposes are left out, and a known _id
  // changes nothing. Errors as read_cluster_time()'s.
  Result<void> add(DocView document);
  bool empty() const noexcept { return keys_.empty(); }
  std::size_t size() const noexcept { return keys_.size(); }
  // The last key's; 0: there is none.
  std::uint64_t expires_at() const noexcept { return keys_.empty() ? 0 : keys_.back().expires_at; }

  // By the key that expires first of those valid at this time. KeyNotFound(211): there is none.
  Result<ClusterTime> sign(std::uint64_t time) const;
  // KeyNotFound(211): the key is not known, or had expired at that time. TimeProofMismatch(204).
  Result<void> verify(const ClusterTime& time) const;

 private:
  struct Key {
    std::int64_t id = 0;
    std::uint64_t expires_at = 0;
    Secret::Ptr bytes;
  };
  std::vector<Key> keys_;  // by expires_at
};

// Times share a signature when they differ in the lowest 16 bits alone.
inline constexpr std::uint64_t signed_range = 0xffff;

}  // namespace spillway::auth
