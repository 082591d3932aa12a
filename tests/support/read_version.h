// Reads a shardVersion as a shard does.
#pragma once

#include <optional>

#include "proxy/catalog/versions.h"

namespace spillway::catalog {

// Any of the forms: [Timestamp, epoch, marker?, timestamp?] or {e, t, v}.
inline std::optional<ChunkVersion> read_chunk_version(ValueView value) {
  if (!value.is_array() && !value.is_document()) return std::nullopt;
  const DocView doc = value.as_document();
  const auto lastmod = read_timestamp(doc[value.is_array() ? "0" : "v"]);
  const auto epoch = read_object_id(doc[value.is_array() ? "1" : "e"]);
  if (!lastmod || !epoch) return std::nullopt;
  auto timestamp = read_timestamp(doc["t"]);
  for (const std::string_view name : {"2", "3"}) {
    if (const auto given = read_timestamp(doc[name])) timestamp = given;
  }
  // Releases to 5.3 leave the timestamp of "ignored" out.
  const ChunkVersion ignored = ChunkVersion::ignored();
  if (!timestamp) timestamp = *epoch == ignored.epoch ? ignored.timestamp : 0;
  return ChunkVersion::of_lastmod(*lastmod, *epoch, *timestamp);
}

}  // namespace spillway::catalog
