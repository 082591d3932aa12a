#include "proxy/config/yaml_limits.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <utility>

#include "proxy/catalog/nearest_name.h"
#include "proxy/config/table.h"

namespace spillway {

namespace {

constexpr std::size_t overrides_max = 10'000;
constexpr int counted_bits_max = 64;  // of an IPv6 address

using Values = LimitValues;
struct Named {
  const char* name;
  std::optional<std::int64_t> Values::* value;
};
constexpr std::array<Named, 4> values = {{{"connections", &Values::connections},
                                          {"cursors", &Values::cursors},
                                          {"bufferedBytes", &Values::buffered_bytes},
                                          {"operationsPerSecond", &Values::operations_per_second}}};

class OverrideReader {
 public:
  explicit OverrideReader(OverridesReading& reading) : reading_(reading) {}

  void read(const YAML::Node& node, std::size_t index) {
    who_ = fmt::format("limits.overrides, entry {}", index + 1);
    if (!node.IsMap()) return error("it must be {user | address, and limits}");
    LimitOverride one;
    int named = 0;
    std::vector<std::string> seen;
    for (const auto& item : node) {
      const std::string key = item.first.IsScalar() ? item.first.Scalar() : "";
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) return error(fmt::format("{} is written twice", key));
      seen.push_back(key);
      if (!item.second.IsScalar()) return error(fmt::format("{} must be one value", key));
      const auto is_key = std::find(limit_key_names.begin(), limit_key_names.end(), key);
      if (is_key != limit_key_names.end()) {
        one.key = static_cast<LimitKey>(is_key - limit_key_names.begin());
        one.name = item.second.Scalar();
        ++named;
      } else if (!take_value(one.values, key, item.second.Scalar())) {
        return;
      }
    }
    if (named != 1) return error("it must name one user or address");
    if (!check(one)) return;
    reading_.overrides.push_back(std::move(one));
  }

 private:
  void error(const std::string& message) { reading_.errors.push_back(fmt::format("{}: {}", who_, message)); }

  bool take_value(Values& into, const std::string& key, const std::string& text) {
    for (const Named& one : values) {
      if (key != one.name) continue;
      if (text == "unlimited") {
        into.*one.value = Values::unlimited;
        return true;
      }
      const auto parsed = parse_config_value(*find_config_key("limits.perUser." + key), text);
      if (parsed.has_error()) {
        error(parsed.error().message);
        return false;
      }
      into.*one.value = std::get<std::int64_t>(*parsed);
      return true;
    }
    error(fmt::format("unknown key \"{}\"{}", key,
                      catalog::did_you_mean(key, {"user", "address", "connections", "cursors",
                                                  "bufferedBytes", "operationsPerSecond"})));
    return false;
  }

  bool check(LimitOverride& one) {
    if (one.values == Values{}) {
      error("it has no limit");
      return false;
    }
    if (one.key == LimitKey::user && one.name.find('.') == std::string::npos) {
      error(fmt::format("a user is database.name, as admin.{}", one.name));
      return false;
    }
    if (one.key == LimitKey::address) {
      const auto range = AddressRange::parse(one.name);
      if (!range) {
        error(fmt::format("\"{}\" is no address, and no range of them", one.name));
        return false;
      }
      if (!range->first.is_v4() && range->bits > counted_bits_max) {
        error("IPv6 addresses are counted by their first 64 bits: name no more of them");
        return false;
      }
      one.range = *range;
    }
    for (const LimitOverride& before : reading_.overrides) {
      if (before.key != one.key || before.name != one.name) continue;
      error(fmt::format("the {} {} is there twice", name_of(one.key), one.name));
      return false;
    }
    return true;
  }

  OverridesReading& reading_;
  std::string who_;
};

}  // namespace

OverridesReading read_overrides(const YAML::Node& list) {
  OverridesReading reading;
  if (list.IsNull()) return reading;
  if (!list.IsSequence() || list.size() > overrides_max) {
    reading.errors.push_back(fmt::format("limits.overrides must be a list of at most {} entries", overrides_max));
    return reading;
  }
  OverrideReader reader(reading);
  for (std::size_t i = 0; i < list.size(); ++i) reader.read(list[i], i);
  return reading;
}

}  // namespace spillway
