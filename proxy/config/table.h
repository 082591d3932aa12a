// The one table of configuration keys. Parsing, validation, reloads, setParameter and getParameter, environment
// variables, --print-config, the manual page and conf/manual/keys.md come from it; a key exists nowhere else.
//
// A second list names the keys of a mongos.conf that set nothing here, so that an existing file still loads. Each is
// ignored with a warning, or refused if ignoring it would make the service less safe than the file says. All of it is
// constant; safe to use from any thread.
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
  text,
  choice,  // one of the words of `range`, separated by " | "; its value is its position
  bytes,   // between min and max, with a unit
  size,    // bytes with a unit, a percentage, auto or unlimited
  yaml,    // routing, users and limits.overrides: code of their own reads them
};

// The step that a new value needs; each includes those before it.
enum class Change : std::uint8_t { restart, reload, runtime };

// boolean, integer (and choice, bytes), text, size.
using ConfigValue = std::variant<bool, std::int64_t, std::string, MemoryLimit>;

// Facts that most keys leave at their defaults.
struct KeyFacts {
  std::string_view unit = {};     // "ms", "s", "bytes"; empty: none
  std::string_view example = {};  // printed, commented out, where there is no default
  std::string_view range = {};    // in words; for integers empty: min and max say it
  std::int64_t min = 0;
  std::int64_t max = 0;
  std::string_view parameter = {};  // setParameter's name, if it is not the key's last word
  std::string_view variable = {};   // the environment variable that sets it
};

struct KeySpec {
  std::string_view key;  // dotted: "net.port"
  ValueType type = ValueType::text;
  Change change = Change::restart;
  KeyFacts facts;
  std::string_view meaning;  // sentences
  // Null for ValueType::yaml. `assign` takes the alternative that `type` names.
  void (*assign)(Config&, const ConfigValue&) = nullptr;
  ConfigValue (*read)(const Config&) = nullptr;
  bool (*same)(const Config&, const Config&) = nullptr;  // null for routing, which is no part of a Config
  // For a key in Parameters: sets the value in use.
  void (*use)(Parameters&, const ConfigValue&) = nullptr;
  ConfigValue (*used)(const Parameters&) = nullptr;

  std::string_view last_word() const { return key.substr(key.rfind('.') + 1); }
  // Its name in setParameter; empty: setParameter does not know it.
  std::string_view parameter() const {
    if (change != Change::runtime) return {};
    return facts.parameter.empty() ? last_word() : facts.parameter;
  }
};

std::span<const KeySpec> config_keys();
// nullptr: no such key. Names are compared exactly, as a mongos does.
const KeySpec* find_config_key(std::string_view key);
// Whether some key, ours or one without effect, starts with "<name>.".
bool is_config_section(std::string_view name);

// A key that is accepted and sets nothing.
struct ForeignKey {
  enum class Fate : std::uint8_t { ignored, refused };
  std::string key;
  Fate fate = Fate::ignored;
  std::string_view harmless;  // this value is already in force here; empty: there is none
  std::string_view note;      // the replacement, or why there is none
  // With sharding.configDB a warning suffices where it is refused otherwise: it promises no protection.
  bool of_mongos = true;
};
std::span<const ForeignKey> foreign_keys();
const ForeignKey* find_foreign_key(std::string_view key);
// Keys of the table that need sharding.configDB; their fate with a static table.
std::span<const ForeignKey> cluster_keys();

// The text of a YAML scalar as the key's value. An error's message names the key as `name` (empty: its own), what was
// expected and what was found; the caller puts the place in front.
Result<ConfigValue> parse_config_value(const KeySpec& spec, std::string_view text, std::string_view name = {});
// The inverse, as YAML takes it; empty: there is no value.
std::string config_value_text(const KeySpec& spec, const ConfigValue& value);

// Applies the differences between the two, so that later changes by setParameter stay.
void use_changes(Parameters& into, const Config& before, const Config& after);

// The known key that was probably meant: by edit distance, or by its last word. Empty: no key is near.
std::string nearest_config_key(std::string_view key);

// Every key with meaning, type, unit, range and default as YAML comments; itself a valid file.
std::string print_config();
// The manual page spillway.yaml(5), of the same table, in man(7)'s macros.
std::string print_man(std::string_view version);
// The same as a Markdown table: conf/manual/keys.md.
std::string print_reference();

}  // namespace spillway
