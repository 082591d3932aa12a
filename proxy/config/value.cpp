// Converts the text of a scalar to a key's value; finds the key that a mistyped key meant.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "proxy/base/number.h"
#include "proxy/catalog/nearest_name.h"
#include "proxy/config/table.h"
#include "proxy/config/text.h"

namespace spillway {

namespace {

constexpr std::size_t shown_bytes_max = 60;

Error wrong(std::string_view name, std::string_view expected, std::string_view text) {
  const bool cut = text.size() > shown_bytes_max;
  return Error(ErrorCode::bad_value, fmt::format("{} must be {}, not \"{}{}\"", name, expected,
                                                 text.substr(0, shown_bytes_max), cut ? "…" : ""));
}

Result<ConfigValue> parse_boolean(const KeySpec& spec, std::string_view name, std::string_view text) {
  const bool number_too = spec.key.starts_with("setParameter.");
  if (text == "true" || (number_too && text == "1")) return ConfigValue(true);
  if (text == "false" || (number_too && text == "0")) return ConfigValue(false);
  return wrong(name, "true or false", text);
}

Result<ConfigValue> parse_integer(const KeySpec& spec, std::string_view name, std::string_view text) {
  const std::optional<std::int64_t> value = parse_number<std::int64_t>(text);
  if (!value || *value < spec.facts.min || *value > spec.facts.max) {
    return wrong(name, fmt::format("an integer from {} to {}", spec.facts.min, spec.facts.max), text);
  }
  return ConfigValue(*value);
}

Result<ConfigValue> parse_choice(const KeySpec& spec, std::string_view name, std::string_view text) {
  const std::vector<std::string_view> words = split(spec.facts.range, " | ");
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end()) {
    std::string expected(words[0]);
    for (std::size_t i = 1; i < words.size(); ++i) {
      expected += (i + 1 == words.size() ? " or " : ", ") + std::string(words[i]);
    }
    return wrong(name, expected, text);
  }
  return ConfigValue(static_cast<std::int64_t>(found - words.begin()));
}

struct SizeUnit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<SizeUnit, 5> size_units = {
    {{"", 1}, {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}, {"TiB", 1ULL << 40}}};

// Digits and a unit; nullopt: another text, or a number of more than 64 bits.
std::optional<std::uint64_t> read_bytes(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = parse_number<std::uint64_t>(text.substr(0, digits));
  const std::string_view unit = trim(text.substr(digits));
  for (const SizeUnit& known : size_units) {
    if (!number || unit != known.name) continue;
    if (*number > std::numeric_limits<std::uint64_t>::max() / known.bytes) break;
    return *number * known.bytes;
  }
  return std::nullopt;
}

Result<ConfigValue> parse_bytes(const KeySpec& spec, std::string_view name, std::string_view text) {
  const std::optional<std::uint64_t> bytes = read_bytes(text);
  const bool fits = bytes && *bytes >= static_cast<std::uint64_t>(spec.facts.min) &&
                    *bytes <= static_cast<std::uint64_t>(spec.facts.max);
  if (!fits) return wrong(name, spec.facts.range, text);
  return ConfigValue(static_cast<std::int64_t>(*bytes));
}

Result<ConfigValue> parse_size(const KeySpec& spec, std::string_view name, std::string_view text) {
  using Kind = MemoryLimit::Kind;
  if (text == "auto") return ConfigValue(MemoryLimit{});
  if (text == "unlimited") return ConfigValue(MemoryLimit{Kind::unlimited, 0});
  if (text.ends_with('%')) {
    const auto percent = parse_number<std::uint64_t>(trim(text.substr(0, text.size() - 1)));
    if (!percent || *percent < 1 || *percent > 100) return wrong(name, spec.facts.range, text);
    return ConfigValue(MemoryLimit{Kind::percent, *percent});
  }
  const std::optional<std::uint64_t> bytes = read_bytes(text);
  if (!bytes || *bytes < static_cast<std::uint64_t>(spec.facts.min)) return wrong(name, spec.facts.range, text);
  return ConfigValue(MemoryLimit{Kind::bytes, *bytes});
}

std::string_view last_word(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// Sections ("net", "net.tls") and keys, ours first, so that they win ties.
std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names;
  const auto add = [&](std::string_view key) {
    for (std::size_t dot = key.find('.'); dot != std::string_view::npos;
         dot = key.find('.', dot + 1)) {
      names.push_back(key.substr(0, dot));
    }
    names.push_back(key);
  };
  for (const KeySpec& spec : config_keys()) add(spec.key);
  for (const ForeignKey& foreign : foreign_keys()) add(foreign.key);
  return names;
}

}  // namespace

Result<ConfigValue> parse_config_value(const KeySpec& spec, std::string_view text, std::string_view name) {
  if (name.empty()) name = spec.key;
  switch (spec.type) {
    case ValueType::boolean:
      return parse_boolean(spec, name, text);
    case ValueType::integer:
      return parse_integer(spec, name, text);
    case ValueType::choice:
      return parse_choice(spec, name, text);
    case ValueType::bytes:
      return parse_bytes(spec, name, text);
    case ValueType::size:
      return parse_size(spec, name, text);
    case ValueType::text:
      if (text.empty()) return wrong(name, spec.facts.range, text);
      return ConfigValue(std::string(text));
    case ValueType::yaml:
      break;
  }
  return Error(ErrorCode::bad_value, fmt::format("{} is not a single value", name));
}

std::string config_value_text(const KeySpec& spec, const ConfigValue& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  if (const auto* const on = std::get_if<bool>(&value)) return *on ? "true" : "false";
  if (const auto* const limit = std::get_if<MemoryLimit>(&value)) {
    using Kind = MemoryLimit::Kind;
    if (limit->kind == Kind::automatic) return "auto";
    return limit->kind == Kind::unlimited ? "unlimited"
                                          : fmt::format("{}{}", limit->value, limit->kind == Kind::percent ? "%" : "");
  }
  const auto number = std::get<std::int64_t>(value);
  if (spec.type != ValueType::choice) return fmt::format("{}", number);
  return std::string(split(spec.facts.range, " | ")[static_cast<std::size_t>(number)]);
}

std::string nearest_config_key(std::string_view key) {
  constexpr std::size_t key_bytes_max = 100;
  if (key.empty() || key.size() > key_bytes_max) return {};
  std::string_view best;
  std::size_t best_distance = catalog::typing_errors_max(last_word(key).size()) + 1;
  for (const std::string_view name : all_names()) {
    const bool own_section = key.starts_with(name) && key.substr(name.size()).starts_with(".");
    if (own_section) continue;  // no useful suggestion
    const std::size_t distance = catalog::edit_distance(key, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  if (!best.empty()) return std::string(best);
  // In the wrong section: "port" alone, "net.verbosity".
  for (const std::string_view name : all_names()) {
    if (catalog::edit_distance(last_word(name), last_word(key)) == 0) return std::string(name);
  }
  return {};
}

}  // namespace spillway
