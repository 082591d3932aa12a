// The values of the key `limits`: bounds per user and per address. exec/limits.h enforces them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/base/ip_address.h"

namespace spillway {

enum class LimitKey : std::uint8_t { user, address };
inline constexpr std::size_t limit_keys = 2;
inline constexpr std::array<std::string_view, limit_keys> limit_key_names = {"user", "address"};
inline constexpr std::array<std::string_view, limit_keys> limit_sections = {"perUser", "perAddress"};
constexpr std::string_view name_of(LimitKey key) noexcept { return limit_key_names[static_cast<std::size_t>(key)]; }
constexpr std::string_view section_of(LimitKey key) noexcept { return limit_sections[static_cast<std::size_t>(key)]; }

// Unset: the section's value applies; in a section: no limit.
struct LimitValues {
  static constexpr std::int64_t unlimited = 0;  // in an override: no limit, whatever the section says
  std::optional<std::int64_t> connections{}, cursors{}, buffered_bytes{}, operations_per_second{};
  bool operator==(const LimitValues&) const = default;
};

struct LimitOverride {
  LimitKey key = LimitKey::user;
  std::string name;    // "db.user"; of a range its text
  AddressRange range;  // of addresses; the longest that fits counts
  LimitValues values;
  bool operator==(const LimitOverride&) const = default;
};

struct LimitSettings {
  std::array<LimitValues, limit_keys> per;  // by LimitKey
  std::vector<LimitOverride> overrides;
  bool operator==(const LimitSettings&) const = default;
};

}  // namespace spillway
