// The table of keys, the values that it takes, --print-config and the reference made of it.
#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "proxy/config/config.h"
#include "proxy/config/table.h"

using namespace spillway;

namespace {

bool has_default(const KeySpec& spec) {
  return spec.read != nullptr && !config_value_text(spec, spec.read(Config{})).empty();
}

ConfigValue parse(std::string_view key, std::string_view text) {
  const KeySpec* spec = find_config_key(key);
  REQUIRE(spec != nullptr);
  const auto value = parse_config_value(*spec, text);
  REQUIRE(value.has_value());
  return *value;
}

}  // namespace

TEST_CASE("defaults_are_in_range_and_read_as_they_are_printed") {
  for (const KeySpec& spec : config_keys()) {
    CAPTURE(spec.key);
    if (!has_default(spec)) continue;
    const auto value = parse_config_value(spec, config_value_text(spec, spec.read(Config{})));
    REQUIRE(value.has_value());
    CHECK(spec.read(Config{}) == *value);
  }
}

TEST_CASE("every_row_is_complete_and_unique") {
  std::set<std::string_view> names;
  for (const KeySpec& spec : config_keys()) {
    CAPTURE(spec.key);
    CHECK(names.insert(spec.key).second);
    CHECK_FALSE(spec.meaning.empty());
    CHECK(spec.meaning.back() == '.');
    CHECK(has_default(spec) == spec.facts.example.empty());
    const bool numeric = spec.type == ValueType::integer || spec.type == ValueType::bytes;
    CHECK((numeric ? spec.facts.min < spec.facts.max : spec.facts.max == 0));
    if (spec.type != ValueType::integer && spec.type != ValueType::boolean) {
      CHECK_FALSE(spec.facts.range.empty());
    }
    CHECK((spec.type == ValueType::yaml) == (spec.assign == nullptr));
    CHECK((spec.same == nullptr) == spec.key.starts_with("routing."));
    // setParameter reaches what is in use.
    if (spec.change == Change::runtime) CHECK(spec.use != nullptr);
    CHECK_FALSE(is_config_section(spec.key));
  }
  for (const ForeignKey& foreign : foreign_keys()) {
    CAPTURE(foreign.key);
    CHECK(names.insert(foreign.key).second);
    CHECK_FALSE(is_config_section(foreign.key));
  }
}

TEST_CASE("a_replacement_named_in_a_note_exists") {
  for (const ForeignKey& foreign : foreign_keys()) {
    if (!foreign.note.starts_with("see ")) continue;
    const std::string_view name = foreign.note.substr(4);
    CAPTURE(foreign.key, name);
    CHECK((find_config_key(name) != nullptr || is_config_section(name) || name == "serverStatus"));
  }
}

TEST_CASE("what_is_assigned_is_read_back") {
  for (const KeySpec& spec : config_keys()) {
    if (spec.assign == nullptr) continue;
    CAPTURE(spec.key);
    ConfigValue value;
    switch (spec.type) {
      case ValueType::boolean:
        value = !std::get<bool>(spec.read(Config{}));
        break;
      case ValueType::integer:
      case ValueType::bytes:
        value = spec.read(Config{}) == ConfigValue(spec.facts.max) ? spec.facts.min : spec.facts.max;
        break;
      case ValueType::choice:
        value = std::int64_t{1};
        break;
      case ValueType::size:
        value = MemoryLimit{MemoryLimit::Kind::percent, 7};
        break;
      default:
        value = std::string("something");
    }
    Config config;
    spec.assign(config, value);
    CHECK(spec.read(config) == value);
    CHECK_FALSE(config == Config{});
    CHECK_FALSE(spec.same(config, Config{}));
    if (spec.use == nullptr) continue;
    Parameters parameters;
    spec.use(parameters, value);
    CHECK(parameters == config.parameters);
    CHECK(spec.used(parameters) == value);
  }
}

TEST_CASE("there_are_at_most_70_keys_beside_those_of_a_cluster") {
  CHECK(config_keys().size() - cluster_keys().size() <= 70);  // sharding.configDB counts
}

TEST_CASE("every_key_of_a_cluster_is_a_key") {
  for (const ForeignKey& key : cluster_keys()) {
    CAPTURE(key.key);
    CHECK(find_config_key(key.key) != nullptr);
    CHECK(find_foreign_key(key.key) == nullptr);
  }
}

TEST_CASE("a_reload_takes_what_its_keys_say_and_leaves_what_was_set_since") {
  Config before, after;
  after.parameters.slow_ms = 7;
  Parameters used;
  used.cursor_timeout_ms = 99;  // setParameter
  used.slow_ms = 50;            // the profile command
  use_changes(used, before, after);
  CHECK(used.cursor_timeout_ms == 99);
  CHECK(used.slow_ms == 7);
}

TEST_CASE("sizes_have_units") {
  using Kind = MemoryLimit::Kind;
  const auto size = [](std::string_view text) {
    return std::get<MemoryLimit>(parse("memory.limit", text));
  };
  CHECK(size("auto") == MemoryLimit{Kind::automatic, 0});
  CHECK(size("unlimited") == MemoryLimit{Kind::unlimited, 0});
  CHECK(size("100663296") == MemoryLimit{Kind::bytes, 96ULL << 20});
  CHECK(size("98304KiB") == MemoryLimit{Kind::bytes, 96ULL << 20});
  CHECK(size("96 MiB") == MemoryLimit{Kind::bytes, 96ULL << 20});
  CHECK(size("2GiB") == MemoryLimit{Kind::bytes, 2ULL << 30});
  CHECK(size("1TiB") == MemoryLimit{Kind::bytes, 1ULL << 40});
  CHECK(size("1%") == MemoryLimit{Kind::percent, 1});
  CHECK(size("100%") == MemoryLimit{Kind::percent, 100});
  for (const char* text : {"", "%", "0%", "1.5GiB", "-1GiB", "GiB", "67108863", "1 G", "64mib",
                           "18446744073709551616", "16777216TiB"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_config_value(*find_config_key("memory.limit"), text).has_value());
  }
}

TEST_CASE("bytes_have_units_and_bounds") {
  const auto bytes = [](std::string_view text) {
    return std::get<std::int64_t>(parse("limits.perUser.bufferedBytes", text));
  };
  CHECK(bytes("64KiB") == 65'536);
  CHECK(bytes("8388608") == 8 << 20);
  CHECK(bytes("8 MiB") == 8 << 20);
  CHECK(bytes("1TiB") == 1LL << 40);
  for (const char* text : {"", "auto", "unlimited", "10%", "63KiB", "1025GiB", "-1MiB", "1.5MiB", "MiB", "8mib",
                           "18446744073709551616", "16777216TiB"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_config_value(*find_config_key("limits.perUser.bufferedBytes"), text).has_value());
  }
}

TEST_CASE("integers_are_whole_decimal_texts") {
  CHECK(std::get<std::int64_t>(parse("net.port", "0")) == 0);
  CHECK(std::get<std::int64_t>(parse("net.port", "65535")) == 65'535);
  for (const char* text : {"", " 1", "1 ", "0x10", "1e3", "1.0", "+1"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_config_value(*find_config_key("net.port"), text).has_value());
  }
}

TEST_CASE("the_nearest_key_is_suggested_and_nothing_when_none_is_near") {
  CHECK(nearest_config_key("net.bindip") == "net.bindIp");
  CHECK(nearest_config_key("net.bnidIp") == "net.bindIp");
  CHECK(nearest_config_key("memory.limits") == "memory.limit");
  CHECK(nearest_config_key("worker") == "workers");
  CHECK(nearest_config_key("systemlog") == "systemLog");
  CHECK(nearest_config_key("cursorTimeoutMillis") == "setParameter.cursorTimeoutMillis");
  CHECK(nearest_config_key("net.authorization") == "security.authorization");
  CHECK(nearest_config_key("sharding.confgDB") == "sharding.configDB");
  CHECK(nearest_config_key("qqqqqqqqqqq").empty());
  CHECK(nearest_config_key("net.x").empty());
  CHECK(nearest_config_key("").empty());
  CHECK(nearest_config_key(std::string(1'000'000, 'x')).empty());
}

TEST_CASE("print_config_is_a_valid_configuration_of_defaults") {
  const LoadResult result = load_config({.text = print_config(), .file_name = "printed"});
  CAPTURE(result.errors);
  CHECK(result.ok());
  CHECK(result.warnings.empty());
  CHECK(result.config == Config{});
  CHECK(result.routing != nullptr);
}

TEST_CASE("print_config_stays_valid_with_every_example_taken") {
  std::istringstream in(print_config());
  std::string text;
  for (std::string line; std::getline(in, line);) {
    const std::size_t hash = line.find("# ");
    const bool example = hash != std::string::npos && line.find_first_not_of(' ') == hash &&
                         line.find(": ") != std::string::npos &&
                         line.find("Type: ") == std::string::npos;
    const std::string name = example ? line.substr(hash + 2, line.find(": ") - hash - 2) : "";
    bool known = false;
    for (const KeySpec& spec : config_keys()) {
      known = known || (!spec.facts.example.empty() && spec.key.ends_with("." + name));
    }
    // Files of TLS must be there, and are refused where it is disabled.
    const bool tls_file = name.ends_with("File") || name.ends_with("Password");
    // A user of the shards needs a password.
    const bool alone = name != "path" && name != "user";
    const bool of_cluster = name == "configDB" || name == "clusterAuthMode";
    if (known && alone && !tls_file && !of_cluster) line.erase(hash, 2);
    text += line + "\n";
  }
  const LoadResult result = load_config({.text = text, .file_name = "printed"});
  CAPTURE(text, result.errors);
  CHECK(result.ok());
  CHECK(result.config.authorization == Authorization::disabled);
  CHECK_FALSE(result.config.pid_file_path.empty());
  REQUIRE(result.routing != nullptr);
}

TEST_CASE("print_config_fits_in_100_columns") {
  std::istringstream in(print_config());
  for (std::string line; std::getline(in, line);) {
    CAPTURE(line);
    CHECK(line.size() <= 100);
  }
}

TEST_CASE("the_reference_in_the_manual_is_made_of_the_table") {
  std::ifstream file("conf/manual/keys.md");
  REQUIRE(file);
  std::stringstream text;
  text << file.rdbuf();
  INFO("spillway --print-reference > conf/manual/keys.md");
  CHECK(text.str() == print_reference());
}

TEST_CASE("the_example_files_load_without_warnings") {
  for (const char* path : {"conf/spillway.yaml", "conf/sidecar.yaml", "conf/loadtest.yaml"}) {
    CAPTURE(path);
    const LoadResult result = load_config_file(path, {});
    CAPTURE(result.errors, result.warnings);
    CHECK(result.ok());
    CHECK(result.warnings.empty());
    CHECK(result.routing != nullptr);
  }
}
