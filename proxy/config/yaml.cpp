#include "proxy/config/yaml.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/config/table.h"
#include "proxy/config/yaml_limits.h"
#include "proxy/config/yaml_users.h"
#include "proxy/config/environment.h"
#include "proxy/config/text.h"
#include "proxy/shard/connection_string.h"

namespace spillway {

namespace {

std::string kind_of(const YAML::Node& node) {
  if (node.IsMap()) return "a section";
  if (node.IsSequence()) return "a list";
  return node.IsScalar() ? fmt::format("\"{}\"", node.Scalar()) : "nothing";
}

// Takes a document's events and stores nothing.
class Unheard final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

}  // namespace

// Not by YAML::LoadAll(): for a text that starts with a comma it makes documents without end (0.7).
bool holds_several_documents(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  Unheard unheard;
  return parser.HandleNextDocument(unheard) && parser.HandleNextDocument(unheard);
}

namespace {

// Finds passwords in --set, whose values may be sections and connection strings: a user's, and those of every key or
// option whose name contains "password" (net.tls.certificateKeyFilePassword, tlsCertificateKeyFilePassword=).
bool sets_password(std::string_view text) {
  constexpr std::string_view word = "password";
  if (shard::holds_password(text)) return true;
  std::string lower(text);
  absl::AsciiStrToLower(&lower);
  for (std::size_t at = lower.find(word); at != std::string::npos; at = lower.find(word, at + 1)) {
    const std::size_t next = lower.find_first_not_of("\"' \t", at + word.size());
    if (next != std::string::npos && (lower[next] == '=' || lower[next] == ':')) return true;
  }
  return false;
}

// A list as mongos takes it on its command line: "a,b".
std::string joined(const YAML::Node& list) {
  std::string text;
  for (const YAML::Node& item : list) {
    if (!item.IsScalar()) return {};
    absl::StrAppend(&text, text.empty() ? "" : ",", item.Scalar());
  }
  return text;
}

// The same words between commas, in any order.
bool same_words(std::string_view a, std::string_view b) {
  std::set<std::string_view> words[2];
  for (const std::string_view word : split(a, ",")) words[0].insert(trim(word));
  for (const std::string_view word : split(b, ",")) words[1].insert(trim(word));
  return words[0] == words[1];
}

bool names_config_servers(const YAML::Node& root) {
  if (!root.IsMap()) return false;
  if (root["sharding.configDB"]) return true;
  const YAML::Node sharding = root["sharding"];
  return sharding && sharding.IsMap() && sharding["configDB"];
}

// net.ssl.…, as these keys were called before 4.2.
std::optional<std::string_view> name_of_old_tls_key(std::string_view key) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> names = {{
      {"net.ssl.mode", "net.tls.mode"},
      {"net.ssl.sslOnNormalPorts", "net.tls.mode"},
      {"net.ssl.PEMKeyFile", "net.tls.certificateKeyFile"},
      {"net.ssl.PEMKeyPassword", "net.tls.certificateKeyFilePassword"},
      {"net.ssl.clusterFile", "net.tls.clusterFile"},
      {"net.ssl.clusterPassword", "net.tls.clusterPassword"},
      {"net.ssl.CAFile", "net.tls.CAFile"},
      {"net.ssl.clusterCAFile", "net.tls.clusterCAFile"},
      {"net.ssl.CRLFile", "net.tls.CRLFile"},
      {"net.ssl.allowConnectionsWithoutCertificates", "net.tls.allowConnectionsWithoutCertificates"},
      {"net.ssl.weakCertificateValidation", "net.tls.allowConnectionsWithoutCertificates"},
      {"net.ssl.allowInvalidCertificates", "net.tls.allowInvalidCertificates"},
      {"net.ssl.allowInvalidHostnames", "net.tls.allowInvalidHostnames"},
      {"net.ssl.disabledProtocols", "net.tls.disabledProtocols"},
  }};
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& one) { return one.first == key; });
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

class Reader {
 public:
  // `of_cluster`: an override names config servers. What is legal for a mongos is then accepted, with a warning where
  // it has no effect.
  Reader(ConfigReading& reading, bool of_cluster) : reading_(reading), of_cluster_(of_cluster) {}

  void read_file(const LoadRequest& request) {
    file_name_ = request.file_name;
    const std::optional<YAML::Node> root = parse(request.text, request.file_name);
    reading_.file_parsed = root && (root->IsNull() || root->IsMap());
    of_cluster_ = of_cluster_ || (root && names_config_servers(*root));
    if (!root || root->IsNull()) return;
    if (!root->IsMap()) {
      const bool has_equals = root->IsScalar() && root->Scalar().find('=') != std::string::npos;
      error(place(*root),
            has_equals ? "the configuration is a mapping of keys, in YAML; \"key = value\", MongoDB's format to 2.4, "
                         "is not read: write configdb = X as sharding: {configDB: X}"
                       : "the configuration must be a mapping of keys");
      return;
    }
    walk(*root, "");
  }

  // Single values are plain text, so that bindIp may be "*".
  void read_variable(const EnvironmentValue& value) {
    override_place_ = value.variable;
    seen_.clear();
    if (value.key == "routing.shards") {
      YAML::Node shards(YAML::NodeType::Sequence);
      for (const auto& [name, uri] : split_shards(value.text)) {
        YAML::Node shard;
        shard["name"] = name;
        shard["uri"] = uri;
        shards.push_back(shard);
      }
      override_routing("shards", shards, value.variable);
    } else if (value.key.starts_with("routing.")) {
      const std::optional<YAML::Node> node = parse(value.text, override_place_);
      if (node) override_routing(value.key.substr(value.key.find('.') + 1), *node, value.variable);
    } else {
      entry(value.key, YAML::Node(value.text), override_place_);
    }
  }

  // `text` is "key=value".
  void read_override(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      error(absl::StrCat("--set ", text), "expected key=value");
      return;
    }
    const std::string key = text.substr(0, equals);
    if (sets_password(text)) {
      error(absl::StrCat("--set ", key),
            "a password must not stand on the command line, where every user of the machine sees it: see "
            "security.shards.passwordFile, "
            "or write it into the file");
      return;
    }
    override_place_ = absl::StrCat("--set ", key);
    const std::optional<YAML::Node> value = parse(text.substr(equals + 1), override_place_);
    if (!value) return;
    seen_.clear();
    if (key.starts_with("routing.")) {
      override_routing(key.substr(key.find('.') + 1), *value, "--set routing");
    } else {
      entry(key, *value, override_place_);
    }
  }

  // Last: the input of the routing table.
  void finish_routing() {
    if (!routing_ && routing_overrides_.empty()) return;
    YAML::Node routing = routing_ ? *routing_ : YAML::Node(YAML::NodeType::Map);
    for (const auto& [key, value] : routing_overrides_) routing[key] = value;
    std::string name = routing_sources_.empty() ? file_name_
                       : file_name_.empty()     ? routing_sources_
                                                : absl::StrCat(file_name_, " with ", routing_sources_);
    reading_.read_routing = [routing, name](const catalog::UriCheck& check) {
      return catalog::read_static_routing(routing, name, check);
    };
  }

 private:
  void override_routing(const std::string& key, const YAML::Node& value, const std::string& source) {
    routing_overrides_.emplace_back(key, value);
    add_routing_source(source);
  }
  void add_routing_source(const std::string& source) {
    if (routing_sources_.ends_with(source)) return;
    absl::StrAppend(&routing_sources_, routing_sources_.empty() ? "" : ", ", source);
  }
  void error(const std::string& place, const std::string& message) {
    reading_.result.errors.push_back(place.empty() ? message : absl::StrCat(place, ": ", message));
  }
  void warn(const std::string& place, const std::string& message) {
    reading_.result.warnings.push_back(absl::StrCat(place, ": ", message));
  }

  void wrong_value(std::string_view key, const std::string& at, const std::string& message) {
    error(at, message);
    if (key == "net" || key.starts_with("net.")) reading_.result.net_known = false;
  }

  std::string place(const YAML::Node& node) const {
    if (!override_place_.empty()) return override_place_;
    return absl::StrCat(file_name_, ":", node.Mark().line + 1);
  }

  // One document. nullopt: the error was reported.
  std::optional<YAML::Node> parse(const std::string& text, const std::string& name) {
    try {
      if (holds_several_documents(text)) {
        error(name, "holds more than one YAML document");
        return std::nullopt;
      }
      return YAML::Load(text);
    } catch (const YAML::Exception& e) {
      const bool in_file = override_place_.empty() && !e.mark.is_null();
      error(in_file ? absl::StrCat(name, ":", e.mark.line + 1) : name,
            absl::StrCat("not valid YAML: ", e.msg));
      return std::nullopt;
    }
  }

  // The depth is that of the table's sections: values that are no section are not entered.
  void walk(const YAML::Node& map, const std::string& path) {
    for (const auto& item : map) {
      if (!item.first.IsScalar()) {
        error(place(item.first), "a key must be a word");
        continue;
      }
      const std::string& word = item.first.Scalar();
      entry(path.empty() ? word : absl::StrCat(path, ".", word), item.second, place(item.first));
    }
  }

  void entry(const std::string& key, const YAML::Node& value, const std::string& at) {
    if (const auto [first, is_new] = seen_.emplace(key, at); !is_new) {
      error(at, fmt::format("{} is written twice (first at {})", key, first->second));
      return;
    }
    if (key == "routing") {
      take_routing(value, at);
    } else if (key.starts_with("routing.")) {
      error(at, fmt::format("{} must stand in a section, below \"routing:\"", key));
    } else if (const auto now = name_of_old_tls_key(key)) {
      take_old_tls(key, *now, value, at);
    } else if (key == "net.bindIpAll") {
      take_bind_all(value, at);
    } else if (key == "security.users") {
      take_users(value, at);
    } else if (key == "limits.overrides") {
      take_overrides(value, at);
    } else if (const KeySpec* spec = find_config_key(key)) {
      take_value(*spec, value, at);
    } else if (const ForeignKey* foreign = find_foreign_key(key)) {
      take_foreign(*foreign, value, at);
    } else if (is_config_section(key)) {
      // A section whose keys are all commented out is null.
      if (value.IsMap()) walk(value, key);
      if (!value.IsMap() && !value.IsNull()) {
        wrong_value(key, at, fmt::format("{} must be a section of keys, not {}", key, kind_of(value)));
      }
    } else if (of_cluster_ && key.starts_with("setParameter.")) {
      warn(at, fmt::format("{} has no effect: no parameter of this name is known here", key));
    } else {
      const std::string nearest = nearest_config_key(key);
      error(at, nearest.empty()
                    ? fmt::format("unknown key \"{}\" (--print-config lists all keys)", key)
                    : fmt::format("unknown key \"{}\"; did you mean \"{}\"?", key, nearest));
    }
  }

  void take_routing(const YAML::Node& value, const std::string& at) {
    if (value.IsNull()) return;
    if (!value.IsMap()) {
      error(at, fmt::format("routing must be a section of keys, not {}", kind_of(value)));
      return;
    }
    routing_.emplace(value);
    if (override_place_.empty()) return;
    routing_overrides_.clear();  // --set routing=… replaces it all
    routing_sources_.clear();
    add_routing_source("--set routing");
  }

  void take_users(const YAML::Node& value, const std::string& at) {
    if (value.IsNull()) return;
    UsersReading reading = read_users(value, override_place_.empty() ? file_name_ : std::string());
    for (const std::string& wrong : reading.errors) error(reading.placed ? "" : at, wrong);
    reading_.result.config.users = std::move(reading.users);
    reading_.places.insert_or_assign("security.users", at);
  }

  void take_overrides(const YAML::Node& value, const std::string& at) {
    OverridesReading reading = read_overrides(value);
    for (const std::string& wrong : reading.errors) error(at, wrong);
    reading_.result.config.limits.overrides = std::move(reading.overrides);
    reading_.places.insert_or_assign("limits.overrides", at);
  }

  // Their names before 4.2. A value that is none of the old ones is judged as a new one.
  void take_old_tls(const std::string& key, std::string_view now, const YAML::Node& value, const std::string& at) {
    const std::string text = value.IsScalar() ? value.Scalar() : "";
    const std::string place = absl::StrCat(at, ", as ", key);
    if (key == "net.ssl.sslOnNormalPorts") {
      if (text != "false") entry(std::string(now), text == "true" ? YAML::Node("requireTLS") : value, place);
      return;
    }
    const bool renamed = key == "net.ssl.mode" && text.ends_with("SSL");
    entry(std::string(now), renamed ? YAML::Node(text.substr(0, text.size() - 3) + "TLS") : value, place);
  }

  // A mongos's other name for net.bindIp: "*".
  void take_bind_all(const YAML::Node& value, const std::string& at) {
    const std::string text = value.IsScalar() ? value.Scalar() : "";
    if (text == "true") {
      entry("net.bindIp", YAML::Node("*"), absl::StrCat(at, ", as net.bindIpAll"));
    } else if (text != "false") {
      wrong_value("net.bindIpAll", at, fmt::format("net.bindIpAll must be true or false, not {}", kind_of(value)));
    }
  }

  void take_value(const KeySpec& spec, const YAML::Node& value, const std::string& at) {
    if (!value.IsScalar()) {
      wrong_value(spec.key, at, fmt::format("{} must be one value, not {}", spec.key, kind_of(value)));
      return;
    }
    const Result<ConfigValue> parsed = parse_config_value(spec, value.Scalar());
    if (!parsed) {
      wrong_value(spec.key, at, parsed.error().message);
      return;
    }
    spec.assign(reading_.result.config, *parsed);
    reading_.places.insert_or_assign(std::string(spec.key), at);
  }

  void take_foreign(const ForeignKey& foreign, const YAML::Node& value, const std::string& at) {
    const std::string text = value.IsSequence() ? joined(value) : value.IsScalar() ? value.Scalar() : std::string();
    if (!foreign.harmless.empty() && same_words(text, foreign.harmless)) return;
    if (foreign.fate == ForeignKey::Fate::refused && !(of_cluster_ && foreign.of_mongos)) {
      error(at, fmt::format("{} is refused: {}", foreign.key, foreign.note));
      return;
    }
    warn(at, foreign.note.empty() ? fmt::format("{} has no effect", foreign.key)
                                  : fmt::format("{} has no effect: {}", foreign.key, foreign.note));
  }

  ConfigReading& reading_;
  bool of_cluster_;
  std::string file_name_;
  std::string override_place_;               // empty while the file is read
  std::map<std::string, std::string> seen_;  // every key and section of this source, and its place
  std::optional<YAML::Node> routing_;
  // --set routing.<key>=… and variables, with their names in messages.
  std::vector<std::pair<std::string, YAML::Node>> routing_overrides_;
  std::string routing_sources_;
};

}  // namespace

ConfigReading read_config_yaml(const LoadRequest& request) {
  ConfigReading reading;
  Reader reader(reading, std::any_of(request.overrides.begin(), request.overrides.end(), [](const std::string& text) {
                  return text.starts_with("sharding");
                }));
  reader.read_file(request);
  const std::size_t errors_of_file = reading.result.errors.size();
  for (const EnvironmentValue& value : request.environment) reader.read_variable(value);
  for (const std::string& text : request.overrides) reader.read_override(text);
  if (!reading.file_parsed || reading.result.errors.size() > errors_of_file) reading.result.net_known = false;
  reader.finish_routing();
  return reading;
}

}  // namespace spillway
