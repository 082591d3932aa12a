#include "proxy/auth/cluster_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "proxy/base/check.h"

namespace spillway::auth {

namespace {

constexpr std::int32_t no_such_key = 4;
constexpr std::int32_t time_proof_mismatch = 204;
constexpr std::int32_t key_not_found = 211;

Error missing(std::string_view name) {
  return Error(no_such_key, fmt::format("Missing expected field \"{}\"", name));
}

Result<ValueView> typed(DocView document, std::string_view name, BsonType type) {
  const ValueView value = document[name];
  if (!value.exists()) return missing(name);
  if (value.type == type) return value;
  return Error(ErrorCode::type_mismatch, fmt::format("\"{}\" had the wrong type. Expected {}, found {}", name,
                                                     bson_type_name(type), bson_type_name(value.type)));
}

Result<std::uint64_t> timestamp(DocView document, std::string_view name) {
  const auto value = typed(document, name, BsonType::timestamp);
  if (value.has_error()) return value.error();
  return static_cast<std::uint64_t>(value->as_int64());
}

Result<Bytes> hash_bytes(DocView document, std::string_view name) {
  const auto value = typed(document, name, BsonType::binary);
  if (value.has_error()) return value.error();
  const auto [subtype, bytes] = value->as_binary();
  if (subtype != 0) return Error(ErrorCode::unsupported_format, "SHA1Block only accepts BinDataGeneral type");
  if (bytes.size() == digest_bytes(Hash::sha1)) return bytes;
  return Error(ErrorCode::unsupported_format, fmt::format("Unsupported SHA1Block hash length: {}", bytes.size()));
}

Result<std::int64_t> integer(DocView document, std::string_view name) {
  const ValueView value = document[name];
  if (!value.exists()) return missing(name);
  if (!value.is_number()) {
    return Error(ErrorCode::type_mismatch, fmt::format("Expected field \"{}\" to have numeric type, but found {}", name,
                                                       bson_type_name(value.type)));
  }
  if (const auto whole = value.to_int64()) return *whole;
  return Error(ErrorCode::bad_value,
               fmt::format("Expected field \"{}\" to have a value exactly representable as a 64-bit integer, but found "
                           "{}: {}",
                           name, name, to_json(value)));
}

std::array<std::uint8_t, 20> signature(const Secret& key, std::uint64_t time) {
  const std::uint64_t range = time | signed_range;
  std::array<std::uint8_t, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(range >> (8 * i));
  const Digest made = hmac(Hash::sha1, bytes_of(key.text()), bytes);
  std::array<std::uint8_t, 20> hash{};
  std::copy_n(made.bytes.begin(), hash.size(), hash.begin());
  return hash;
}

std::string text_of_time(std::uint64_t time) {
  return fmt::format("Timestamp({}, {})", seconds_of(time), static_cast<std::uint32_t>(time));
}

}  // namespace

Result<ClusterTime> read_cluster_time(ValueView value) {
  if (!value.is_document()) return Error(10065, "invalid parameter: expected an object ($clusterTime)");
  const DocView document = value.as_document();
  ClusterTime read;
  const auto time = timestamp(document, "clusterTime");
  if (time.has_error()) return time.error();
  read.time = *time;
  const auto found = typed(document, "signature", BsonType::document);
  if (found.has_error()) return found.error();
  const DocView proof = found->as_document();
  const auto hash = hash_bytes(proof, "hash");
  if (hash.has_error()) return hash.error();
  std::copy(hash->begin(), hash->end(), read.hash.begin());
  const auto key_id = integer(proof, "keyId");
  if (key_id.has_error()) return key_id.error();
  read.key_id = *key_id;
  return read;
}

// Every reply and every command of a cluster has one: a copy of this, with the time put in.
void append_cluster_time(BsonWriter& out, const ClusterTime& time) {
  constexpr std::size_t time_at = 4 + 18 + 13, hash_at = time_at + 8 + 15 + 11, key_id_at = hash_at + 20 + 7;
  static const BsonDoc zeros = [] {
    BsonWriter writer;
    writer.begin_document("$clusterTime").append_timestamp("clusterTime", 0);
    writer.begin_document("signature").append_binary("hash", 0, ClusterTime().hash).append("keyId", std::int64_t{0});
    writer.end().end();
    return std::move(writer).finish();
  }();
  std::array<std::uint8_t, 4 + cluster_time_bytes + 1> document;
  SPILLWAY_CHECK(zeros.size() == document.size());
  std::memcpy(document.data(), zeros.view().data(), document.size());
  store_le(document.data() + time_at, time.time);
  std::memcpy(document.data() + hash_at, time.hash.data(), time.hash.size());
  store_le(document.data() + key_id_at, time.key_id);
  out.append_elements(DocView::trusted(document.data()));
}

Result<void> ClusterKeys::add(DocView document) {
  const auto id = integer(document, "_id");
  if (id.has_error()) return id.error();
  const auto purpose = typed(document, "purpose", BsonType::string);
  if (purpose.has_error()) return purpose.error();
  if (purpose->as_string() != "HMAC") return {};
  const auto bytes = hash_bytes(document, "key");
  if (bytes.has_error()) return bytes.error();
  const auto expires_at = timestamp(document, "expiresAt");
  if (expires_at.has_error()) return expires_at.error();
  if (std::any_of(keys_.begin(), keys_.end(), [&](const Key& key) { return key.id == *id; })) return {};
  const auto place = std::upper_bound(keys_.begin(), keys_.end(), *expires_at,
                                      [](std::uint64_t time, const Key& key) { return time < key.expires_at; });
  keys_.insert(place, {*id, *expires_at, Secret::make(text_of(*bytes))});
  return {};
}

Result<ClusterTime> ClusterKeys::sign(std::uint64_t time) const {
  const auto key = std::find_if(keys_.begin(), keys_.end(), [&](const Key& k) { return k.expires_at > time; });
  if (key == keys_.end()) return Error(key_not_found, "No key found that is valid for " + text_of_time(time));
  return ClusterTime{time, signature(*key->bytes, time), key->id};
}

Result<void> ClusterKeys::verify(const ClusterTime& time) const {
  const auto key = std::find_if(keys_.begin(), keys_.end(),
                                [&](const Key& k) { return k.id == time.key_id && k.expires_at >= time.time; });
  if (key == keys_.end()) {
    return Error(key_not_found, fmt::format("Cache Reader No keys found for HMAC that is valid for time: {{ ts: {} }} "
                                            "with id: {}",
                                            text_of_time(time.time), time.key_id));
  }
  if (same_secret(signature(*key->bytes, time.time), time.hash)) return {};
  return Error(time_proof_mismatch, "Proof does not match the cluster time");
}

}  // namespace spillway::auth
