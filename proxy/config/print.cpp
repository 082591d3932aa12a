// --print-config: the table as a YAML file that loads, one comment per key.
#include <fmt/format.h>

#include <vector>

#include "proxy/config/table.h"
#include "proxy/config/environment.h"
#include "proxy/config/words.h"

namespace spillway {

namespace {

constexpr std::size_t column_max = 96;

std::string_view type_name(ValueType type) {
  switch (type) {
    case ValueType::boolean:
      return "boolean";
    case ValueType::integer:
      return "integer";
    case ValueType::number:
      return "number";
    case ValueType::list:
      return "list";
    case ValueType::text:
      return "text";
    case ValueType::choice:
      return "word";
    case ValueType::bytes:
    case ValueType::size:
      return "size";
    case ValueType::routing:
    case ValueType::users:
    case ValueType::overrides:
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
  if (const std::string_view variable = environment_variable(spec.key); !variable.empty()) {
    text += fmt::format(" Environment: {}.", variable);
  }
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
      "out, with an example. A key left out has its default; environment variables, where a key "
      "names one, go before the file, and --set key=value goes before both.");
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

namespace {

// As roff takes it: no control line, no escape, nothing but ASCII.
std::string roff(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0xe0 && i + 2 < text.size()) {  // three bytes of UTF-8
      const auto continued = [&](std::size_t at) { return static_cast<unsigned>(text[at]) & 0x3fU; };
      out += fmt::format("\\[u{:04X}]", (byte & 0x0fU) << 12U | continued(i + 1) << 6U | continued(i + 2));
      i += 2;
    } else if (byte == '\\') {
      out += "\\e";
    } else if (byte == '-') {
      out += "\\-";
    } else if (byte == '\'') {
      out += "\\(aq";
    } else {
      out += text[i];
    }
  }
  return out;
}

constexpr std::string_view man_introduction = R"(.SH NAME
spillway.yaml \- configuration of spillway(8)
.SH DESCRIPTION
A YAML file with the keys of a mongos.conf where they mean something here, and a few of their own.
It is named by
.B \-\-config
or the environment variable
.BR SPILLWAY_CONFIG ;
the package has it at
.IR /etc/spillway/spillway.yaml .
Keys are written here with dots; in the file each part is a section:
.PP
.EX
net:
  port: 27017
  tls: {mode: requireTLS, certificateKeyFile: /etc/spillway/server.pem}
memory: {limit: 512MiB}
routing:
  shards:
    \- {name: shard0, uri: "mongodb://db0.example.org/"}
    \- {name: shard1, uri: "mongodb://db1,db2/?replicaSet=rs1"}
  collections:
    \- {ns: app.users, key: {_id: hashed}}
.EE
.PP
Only
.B routing.shards
is required. An environment variable, where a key names one, goes before the file, and
.BI \-\-set\~ key = value
goes before both.
.B spillway \-\-check\-config
reports every error. A key that a mongos knows and that has no effect here is ignored with a warning;
one that promises protection which is not there is refused.
.PP
.I Changed by
says how a key takes effect: setParameter is MongoDB's command; a reload is SIGHUP to the process.
.SH KEYS
)";

constexpr std::string_view man_end = R"(.SH FILES
.TP
.I /usr/share/doc/spillway/manual
Routing tables, limits, reload and shutdown (configuration.md), TLS, users and roles (security.md).
.TP
.I /usr/share/spillway
Examples.
.SH SEE ALSO
.BR spillway (8)
)";

}  // namespace

std::string print_man(std::string_view version) {
  std::string out = fmt::format(
      ".\\\" Made by spillway --print-man from the table of keys.\n"
      ".TH SPILLWAY.YAML 5 2026-11-21 \"spillway {}\" \"File formats\"\n.nr HY 0\n.ad l\n", version);
  out += man_introduction;
  for (const KeySpec& spec : config_keys()) {
    out += fmt::format(".TP\n.B {}\n{}\n.br\n{}\n", roff(spec.key), roff(spec.meaning), roff(facts(spec)));
  }
  out += man_end;
  return out;
}

}  // namespace spillway
