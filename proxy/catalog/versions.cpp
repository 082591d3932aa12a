#include "proxy/catalog/versions.h"

#include <algorithm>
#include <limits>

#include "cursor/hex.h"

namespace spillway::catalog {
namespace {

constexpr ObjectId ignored_epoch{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

ValueView object_id_value(const ObjectId& id) noexcept { return {BsonType::object_id, id}; }

Error wrong_version_type(std::string_view what, ValueView value, std::string_view expected) {
  const std::string found = value.exists() ? "the type " + std::string(bson_type_name(value.type)) : "missing";
  return Error(ErrorCode::type_mismatch,
               std::string(what) + " is " + found + ", expected type " + std::string(expected));
}

// Releases to 5.3 write these two without their timestamp.
std::uint64_t implied_timestamp(const ObjectId& epoch) noexcept {
  return epoch == ignored_epoch ? ChunkVersion::ignored().timestamp : 0;
}

}  // namespace

ChunkVersion ChunkVersion::ignored() noexcept {
  return {0, 0, ignored_epoch, std::numeric_limits<std::uint64_t>::max()};
}

ChunkVersion ChunkVersion::of_lastmod(std::uint64_t lastmod, const ObjectId& epoch, std::uint64_t timestamp) noexcept {
  return {static_cast<std::uint32_t>(lastmod >> 32), static_cast<std::uint32_t>(lastmod), epoch, timestamp};
}

std::string to_text(const ChunkVersion& version) {
  std::string text = std::to_string(version.major) + "|" + std::to_string(version.minor) + "||" + hex(version.epoch);
  if (version.timestamp == 0) return text;
  return text + "||Timestamp(" + std::to_string(version.timestamp >> 32) + ", " +
         std::to_string(static_cast<std::uint32_t>(version.timestamp)) + ")";
}

void append_shard_version(BsonWriter& out, const ChunkVersion& version, VersionForm form, bool multi_write_marker) {
  append_chunk_version(out, "shardVersion", version, form, multi_write_marker);
}

void append_chunk_version(BsonWriter& out, std::string_view name, const ChunkVersion& version, VersionForm form,
                          bool multi_write_marker) {
  if (form == VersionForm::object) {
    out.begin_document(name);
    out.append("e", object_id_value(version.epoch));
    out.append_timestamp("t", version.timestamp);
    out.append_timestamp("v", version.lastmod());
    out.end();
    return;
  }
  out.begin_array(name);
  out.append_timestamp("0", version.lastmod());
  out.append("1", object_id_value(version.epoch));
  if (multi_write_marker) out.append("2", true);
  const bool has_timestamp = version.timestamp != implied_timestamp(version.epoch);
  if (form == VersionForm::array_with_timestamp && has_timestamp) {
    out.append_timestamp(multi_write_marker ? "3" : "2", version.timestamp);
  }
  out.end();
}

void append_database_version(BsonWriter& out, const DatabaseVersion& version, std::string_view name) {
  out.begin_document(name);
  const bool has_uuid = version.uuid != Uuid{} || !version.timestamp;
  if (has_uuid) out.append_binary("uuid", 4, version.uuid);
  if (version.timestamp) out.append_timestamp("timestamp", *version.timestamp);
  out.append("lastMod", version.last_mod);
  out.end();
}

Result<DatabaseVersion> read_database_version(ValueView value) {
  if (!value.is_document()) return wrong_version_type("A database version", value, "object");
  const DocView doc = value.as_document();
  DatabaseVersion version;
  if (const ValueView timestamp = doc["timestamp"]; timestamp.exists()) {
    version.timestamp = read_timestamp(timestamp);
    if (!version.timestamp) {
      return wrong_version_type("A database version's field 'timestamp'", timestamp, "timestamp");
    }
  }
  const ValueView uuid = doc["uuid"];
  const auto id = read_uuid(uuid);
  if (!id && (uuid.exists() || !version.timestamp)) {
    return wrong_version_type("A database version's field 'uuid'", uuid, "UUID");
  }
  version.uuid = id.value_or(Uuid{});
  const auto last_mod = doc["lastMod"].to_int64();
  if (!last_mod || *last_mod != static_cast<std::int32_t>(*last_mod)) {
    return wrong_version_type("A database version's field 'lastMod'", doc["lastMod"], "int");
  }
  version.last_mod = static_cast<std::int32_t>(*last_mod);
  return version;
}

std::optional<ObjectId> read_object_id(ValueView value) noexcept {
  if (value.type != BsonType::object_id) return std::nullopt;
  ObjectId id;
  std::copy_n(value.bytes.begin(), id.size(), id.begin());
  return id;
}

std::optional<Uuid> read_uuid(ValueView value) noexcept {
  if (value.type != BsonType::binary) return std::nullopt;
  const auto [subtype, data] = value.as_binary();
  if (subtype != 4 || data.size() != Uuid{}.size()) return std::nullopt;
  Uuid id;
  std::copy_n(data.begin(), id.size(), id.begin());
  return id;
}

std::optional<std::uint64_t> read_timestamp(ValueView value) noexcept {
  if (value.type != BsonType::timestamp) return std::nullopt;
  return load_le<std::uint64_t>(value.bytes.data());
}

}  // namespace spillway::catalog
