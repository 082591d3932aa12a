// --print-config: the table as a YAML file that loads, one comment per key.
#include <fmt/format.h>

#include <vector>

#include "proxy/server/config_table.h"
#include "proxy/server/words.h"

namespace spillway::server {

namespace {

constexpr std::size_t column_max = 96;

std::string_view type_name(ValueType type) {
  switch (type) {
    case ValueType::boolean:
      return "boolean";
    case ValueType::integer:
      return "integer";
    case ValueType::text:
      return "text";
    case ValueType::choice:
      return "word";
    case ValueType::bytes:
    case ValueType::size:
      return "size";
    case ValueType::routing:
    case ValueType::users:
      return "YAML";
  }
  return "";
}

void print_comment(std::string& out, std::size_t indent, std::string_view text) {
  std::string line;
  const auto flush = [&] {
    if (!line.empty()) out += std::string(indent, ' ') + "#" + line + "\n";
    line.clear();
  };
  for (const std::string_view word : split(text, " ")) {
    if (indent + 1 + line.size() + 1 + word.size() > column_max) flush();
    line += " " + std::string(word);
  }
  flush();
}

std::string facts(const KeySpec& spec) {
  std::string range(spec.range);
  if (spec.type == ValueType::integer) range = fmt::format("{} to {}", spec.min, spec.max);
  if (spec.type == ValueType::boolean && range.empty()) range = "true | false";
  std::string text = fmt::format("Type: {}.", type_name(spec.type));
  if (!spec.unit.empty()) text += fmt::format(" Unit: {}.", spec.unit);
  text +=
      fmt::format(" Range: {}. Default: {}.", range, spec.preset.empty() ? "none" : spec.preset);
  text += fmt::format(" Changed by: {}{}restart.", spec.at_runtime ? "setParameter, " : "",
                      spec.at_reload ? "reload, " : "");
  return text;
}

// Prints the sections that open between two keys, a blank line between keys of one section, and
// returns the key's depth.
std::size_t print_sections(std::string& out, std::string_view previous, std::string_view key) {
  const std::vector<std::string_view> old_words = split(previous, ".");
  const std::vector<std::string_view> words = split(key, ".");
  std::size_t same = 0;
  while (same + 1 < words.size() && same + 1 < old_words.size() && words[same] == old_words[same]) {
    ++same;
  }
  out += "\n";
  for (std::size_t depth = same; depth + 1 < words.size(); ++depth) {
    out += fmt::format("{}{}:\n", std::string(2 * depth, ' '), words[depth]);
  }
  return words.size() - 1;
}

}  // namespace

std::string print_config() {
  std::string out;
  print_comment(
      out, 0,
      "Every key of a configuration with its default. Keys without a default are commented "
      "out, with an example. A key left out has its default; --set key=value goes before "
      "the file.");
  std::string_view previous;
  for (const KeySpec& spec : config_keys()) {
    const std::size_t indent = 2 * print_sections(out, previous, spec.key);
    print_comment(out, indent, spec.meaning);
    print_comment(out, indent, facts(spec));
    const std::string_view name = spec.key.substr(spec.key.rfind('.') + 1);
    // The one key that a file must have is printed with its example.
    const bool written = !spec.preset.empty() || spec.key == "routing.shards";
    out += fmt::format("{}{}{}: {}\n", std::string(indent, ' '), written ? "" : "# ", name,
                       spec.preset.empty() ? spec.example : spec.preset);
    previous = spec.key;
  }
  return out;
}

}  // namespace spillway::server
