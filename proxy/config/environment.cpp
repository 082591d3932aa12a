#include "proxy/config/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "proxy/config/table.h"

namespace spillway {

namespace {

constexpr std::string_view prefix = "SPILLWAY_";
// Kubernetes sets <NAME>_SERVICE_HOST, <NAME>_SERVICE_PORT[_<PORT>], <NAME>_PORT_<N>_TCP[_…], and <NAME>_PORT as an
// address. A number in <NAME>_PORT is a user's attempt to set net.….port.
bool is_service_link(std::string_view name, std::string_view value) {
  const auto holds = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (name.ends_with("_SERVICE_HOST") || holds("_SERVICE_PORT")) return true;
  if (holds("_TCP") || holds("_UDP") || holds("_SCTP")) return true;
  return name.ends_with("_PORT") && value.find("://") != std::string_view::npos;
}

}  // namespace

std::vector<EnvironmentSetting> environment_settings() {
  std::vector<EnvironmentSetting> settings = {{"SPILLWAY_CONFIG", ""}};
  for (const KeySpec& spec : config_keys()) {
    if (!spec.facts.variable.empty()) settings.push_back({spec.facts.variable, spec.key});
  }
  return settings;
}

Environment read_environment(const char* const* variables) {
  std::map<std::string_view, std::string_view> set;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view text = *variables;
    const std::size_t equals = text.find('=');
    if (!text.starts_with(prefix) || equals == std::string_view::npos) continue;
    set.insert_or_assign(text.substr(0, equals), text.substr(equals + 1));
  }
  Environment environment;
  for (const EnvironmentSetting& setting : environment_settings()) {
    const auto found = set.find(setting.variable);
    if (found == set.end()) continue;
    if (setting.key.empty()) {
      environment.config_path = found->second;
    } else if (!found->second.empty()) {
      environment.values.push_back(
          {std::string(setting.variable), std::string(setting.key), std::string(found->second)});
    }
    set.erase(found);
  }
  for (const auto& [name, value] : set) {
    if (is_service_link(name, value)) continue;
    environment.warnings.push_back(fmt::format(
        "the environment variable {} has no effect (--help lists those that have)", name));
  }
  return environment;
}

std::vector<std::pair<std::string, std::string>> split_shards(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  std::vector<std::pair<std::string, std::string>> shards;
  for (std::size_t at = text.find_first_not_of(blanks); at != std::string_view::npos;
       at = text.find_first_not_of(blanks, at)) {
    const std::size_t end = std::min(text.find_first_of(blanks, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const std::size_t equals = word.find('=');
    const bool named = equals < word.find("://");  // a "=" after that is an option's
    shards.emplace_back(
        named ? std::string(word.substr(0, equals)) : fmt::format("shard{}", shards.size()),
        word.substr(named ? equals + 1 : 0));
    at = end;
  }
  return shards;
}

}  // namespace spillway
