#include "proxy/shard/read_preference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace spillway::shard {

namespace {

// Staleness is not measured more precisely than this.
constexpr std::int64_t max_staleness_seconds_min = 90;

constexpr std::array<std::string_view, 5> mode_names = {"primary", "primaryPreferred", "secondary",
                                                        "secondaryPreferred", "nearest"};

Result<std::vector<ReadPreference::TagSet>> parse_tags(ValueView tags) {
  if (!tags.is_array()) {
    return Error(ErrorCode::type_mismatch, "$readPreference tags must be an array of documents");
  }
  std::vector<ReadPreference::TagSet> sets;
  bool any = false;  // does a set name a tag at all?
  for (const Element& set : tags.as_document()) {
    if (!set.is_document()) {
      return Error(ErrorCode::type_mismatch, "$readPreference tags must be an array of documents");
    }
    ReadPreference::TagSet& target = sets.emplace_back();
    for (const Element& tag : set.as_document()) {
      if (!tag.is_string()) {
        return Error(ErrorCode::type_mismatch,
                     fmt::format("The $readPreference tag '{}' must be a string", tag.name));
      }
      target.emplace_back(tag.name, tag.as_string());
      any = true;
    }
  }
  if (!any) sets.clear();
  return sets;
}

Result<std::int64_t> parse_max_staleness(ValueView value) {
  if (!value.is_number()) {
    return Error(ErrorCode::type_mismatch, "maxStalenessSeconds must be a number");
  }
  const std::optional<double> seconds = value.to_double();
  if (!seconds || !(*seconds == 0 || *seconds >= static_cast<double>(max_staleness_seconds_min)) ||
      *seconds > 2'147'483'647.0) {
    return Error(
        ErrorCode::max_staleness_out_of_range,
        fmt::format("maxStalenessSeconds must be at least {} seconds", max_staleness_seconds_min));
  }
  return *seconds == 0 ? -1 : static_cast<std::int64_t>(*seconds);
}

}  // namespace

std::string_view read_mode_name(ReadMode mode) noexcept { return mode_names[static_cast<std::size_t>(mode)]; }

Result<ReadPreference> ReadPreference::parse(DocView document) {
  ReadPreference result;
  bool hedge = false;
  const ValueView mode = document["mode"];
  if (!mode.exists()) {
    return Error(ErrorCode::failed_to_parse, "$readPreference has no mode");
  }
  if (!mode.is_string()) {
    return Error(ErrorCode::type_mismatch, "The mode of $readPreference must be a string");
  }
  const auto known = std::find(mode_names.begin(), mode_names.end(), mode.as_string());
  if (known == mode_names.end()) {
    return Error(ErrorCode::failed_to_parse,
                 fmt::format("Unknown $readPreference mode '{}'", mode.as_string()));
  }
  result.mode = static_cast<ReadMode>(known - mode_names.begin());
  if (const ValueView tags = document["tags"]; tags.exists()) {
    auto sets = parse_tags(tags);
    if (sets.has_error()) return sets.error();
    result.tag_sets = *std::move(sets);
  }
  if (const ValueView staleness = document["maxStalenessSeconds"]; staleness.exists()) {
    auto seconds = parse_max_staleness(staleness);
    if (seconds.has_error()) return seconds.error();
    result.max_staleness_seconds = *seconds;
  }
  if (const ValueView wish = document["hedge"]; wish.exists()) {
    if (!wish.is_document()) {
      return Error(ErrorCode::type_mismatch, "The hedge of $readPreference must be a document");
    }
    const ValueView enabled = wish.as_document()["enabled"];
    hedge = !enabled.exists() || enabled.truthy();
  }
  if (result.mode == ReadMode::primary) {
    if (!result.tag_sets.empty()) {
      return Error(ErrorCode::bad_value, "The read preference 'primary' takes no tags");
    }
    if (result.max_staleness_seconds >= 0) {
      return Error(ErrorCode::bad_value,
                   "The read preference 'primary' takes no maxStalenessSeconds");
    }
    if (hedge) {
      return Error(ErrorCode::invalid_options, "The read preference 'primary' takes no hedge");
    }
  }
  return result;
}

const ReadPreference& ReadPreference::primary_preferred() {
  static const ReadPreference instance{ReadMode::primary_preferred, {}, -1};
  return instance;
}

}  // namespace spillway::shard
