// What a router says about placement with each command to a shard of a cluster: shardVersion and databaseVersion, in
// the form that the shard's release takes.
//
//   to 4.4    [Timestamp(major, minor), epoch]               5.0 to 5.3  the same, and the collection's timestamp
//   from 6.0  {e: epoch, t: timestamp, v: Timestamp(major, minor)}
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cursor/bson_view.h"
#include "cursor/bson_writer.h"

namespace spillway::catalog {

using ObjectId = std::array<std::uint8_t, 12>;
using Uuid = std::array<std::uint8_t, 16>;

struct ChunkVersion {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  ObjectId epoch{};             // another one after the collection was dropped and made again, refined or resharded
  std::uint64_t timestamp = 0;  // of the epoch; 0: none, to 4.4

  static ChunkVersion unsharded() noexcept { return {}; }
  // "Do not check."
  static ChunkVersion ignored() noexcept;
  // Major and minor as config.chunks keeps them in `lastmod`: a Timestamp's value.
  static ChunkVersion of_lastmod(std::uint64_t lastmod, const ObjectId& epoch, std::uint64_t timestamp) noexcept;
  std::uint64_t lastmod() const noexcept { return std::uint64_t{major} << 32 | minor; }

  bool operator==(const ChunkVersion& other) const noexcept = default;
};

// "2|1||<epoch>" for logs, with "||<timestamp>" if there is one.
std::string to_text(const ChunkVersion& version);

enum class VersionForm { array, array_with_timestamp, object };

// The form of a shard with this maxWireVersion.
constexpr VersionForm version_form(std::int32_t max_wire_version) noexcept {
  if (max_wire_version >= 17) return VersionForm::object;
  return max_wire_version >= 13 ? VersionForm::array_with_timestamp : VersionForm::array;
}

// `multi_write_marker`: a multi-write with the version "ignored", for shards of 4.4 to 5.3 (maxWireVersion 9 to 16);
// an object does not have it.
void append_shard_version(BsonWriter& out, const ChunkVersion& version, VersionForm form,
                          bool multi_write_marker = false);
void append_chunk_version(BsonWriter& out, std::string_view name, const ChunkVersion& version, VersionForm form,
                          bool multi_write_marker = false);

struct DatabaseVersion {
  Uuid uuid{};                             // another one after the database was dropped and made again
  std::optional<std::uint64_t> timestamp;  // from 5.0
  std::int32_t last_mod = 0;               // plus one with each move of the primary
  bool operator==(const DatabaseVersion& other) const noexcept = default;
};

void append_database_version(BsonWriter& out, const DatabaseVersion& version,
                             std::string_view name = "databaseVersion");
// {uuid, timestamp?, lastMod}; uuid may be missing where there is a timestamp.
Result<DatabaseVersion> read_database_version(ValueView value);

// The bytes of an ObjectId or a UUID; nullopt for another type.
std::optional<ObjectId> read_object_id(ValueView value) noexcept;
std::optional<Uuid> read_uuid(ValueView value) noexcept;
std::optional<std::uint64_t> read_timestamp(ValueView value) noexcept;

}  // namespace spillway::catalog
