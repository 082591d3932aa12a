// $readPreference, parsed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cursor/bson_view.h"

namespace spillway::shard {

enum class ReadMode : std::uint8_t {
  primary,
  primary_preferred,
  secondary,
  secondary_preferred,
  nearest
};
std::string_view read_mode_name(ReadMode mode) noexcept;

struct ReadPreference {
  using TagSet = std::vector<std::pair<std::string, std::string>>;

  ReadMode mode = ReadMode::primary;
  std::vector<TagSet> tag_sets;             // tried in order; empty: any server
  std::int64_t max_staleness_seconds = -1;  // −1: no limit

  // Errors: FailedToParse(9) for an unknown mode, BadValue(2) for tags with primary,
  // MaxStalenessOutOfRange(160), TypeMismatch(14).
  static Result<ReadPreference> parse(DocView document);
  // What this router's own questions have: a secondary may answer while there is no primary.
  static const ReadPreference& primary_preferred();
};

}  // namespace spillway::shard
