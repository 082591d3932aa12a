// The one table of configuration keys. It drives parsing, validation, --print-config, the reference
// in conf/README.md and what getParameter lists; a key exists nowhere else.
//
// Beside it stands the list of keys that a mongos knows and that mean nothing here, so that a
// mongos.conf can be brought along: each is ignored with a warning, or refused if ignoring it would
// leave somebody less safe than he thinks. All of it is constant; safe to use from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "cursor/error.h"
#include "proxy/config/config.h"

namespace spillway {

enum class ValueType : std::uint8_t {
  boolean,  // true or false; below setParameter 1 and 0 too, as a mongos takes them
  integer,  // between min and max
  number,   // above 0
  text,
  choice,   // one of the words of `range`, separated by " | "; its value is its position
  bytes,    // between min and max, with a unit
  size,     // bytes with a unit, a percentage, auto or unlimited
  routing,  // YAML below `routing`, read by catalog::load_static_routing
  users,    // a list of users, in YAML
  overrides,  // a list of limits, in YAML
  list,     // a YAML list of words, or words separated by commas, which its value is
};

// boolean, integer (and choice, bytes), text (and list), size, number.
using ConfigValue = std::variant<bool, std::int64_t, std::string, MemoryLimit, double>;

struct KeySpec {
  std::string_view key;  // dotted: "net.port"
  ValueType type = ValueType::text;
  std::string_view unit = {};     // "ms", "s", "bytes"; empty: none
  std::string_view preset = {};   // the default as YAML writes it; empty: the key has none
  std::string_view example = {};  // printed, commented out, where there is no default
  std::string_view range = {};    // in words; for integers empty: min and max say it
  std::int64_t min = 0;
  std::int64_t max = 0;
  bool at_runtime = false;        // setParameter changes it while running
  bool at_reload = false;         // a reload does; else a restart
  std::string_view meaning = {};  // sentences
  // Null for ValueType::routing, users and overrides. `assign` takes the alternative that `type` names.
  void (*assign)(Config&, const ConfigValue&) = nullptr;
  ConfigValue (*read)(const Config&) = nullptr;
};

std::span<const KeySpec> config_keys();
// nullptr: no such key. Names are compared exactly, as a mongos does.
const KeySpec* find_config_key(std::string_view key);
// Whether some key, ours or a mongos's, starts with "<name>.".
bool is_config_section(std::string_view name);

// A key of a mongos that has no effect here.
struct ForeignKey {
  std::string_view key;
  // What is refused: nothing (""), every value ("*"), or every value but this one.
  std::string_view allowed_only;
  std::string_view note;  // the replacement, or why there is none

  bool refuses(std::string_view value) const {
    return allowed_only == "*" || (!allowed_only.empty() && value != allowed_only);
  }
};
std::span<const ForeignKey> foreign_keys();
const ForeignKey* find_foreign_key(std::string_view key);

// The text of a YAML scalar as the key's value. The message of an error says what was expected and
// found; the caller puts the place in front.
Result<ConfigValue> parse_config_value(const KeySpec& spec, std::string_view text);

// The known key that was probably meant: by edit distance, or the one with this last word. Empty:
// nothing is near.
std::string nearest_config_key(std::string_view key);

// Every key with meaning, type, unit, range and default as YAML comments; itself a valid file.
std::string print_config();
// The manual page spillway.yaml(5), of the same table, in man(7)'s macros.
std::string print_man(std::string_view version);

}  // namespace spillway
