// The table as a YAML file that loads, as a manual page and as Markdown.
#include <absl/strings/str_replace.h>
#include <fmt/format.h>

#include <vector>

#include "proxy/config/table.h"
#include "proxy/config/text.h"

namespace spillway {

namespace {

constexpr std::size_t column_max = 96;

std::string_view type_name(ValueType type) {
  constexpr std::string_view names[] = {"boolean", "integer", "text", "word", "size", "size", "YAML"};
  return names[static_cast<std::size_t>(type)];
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

std::string range_of(const KeySpec& spec) {
  if (spec.type == ValueType::integer) return fmt::format("{} to {}", spec.facts.min, spec.facts.max);
  return spec.type == ValueType::boolean ? "true | false" : std::string(spec.facts.range);
}

// Empty: it has none.
std::string default_of(const KeySpec& spec) {
  return spec.read == nullptr ? "" : config_value_text(spec, spec.read(Config{}));
}

std::string_view changed_by(const KeySpec& spec) {
  if (spec.change == Change::restart) return "restart";
  return spec.change == Change::reload ? "reload, restart" : "setParameter, reload, restart";
}

std::string facts(const KeySpec& spec) {
  const std::string preset = default_of(spec);
  std::string text = fmt::format("Type: {}.", type_name(spec.type));
  if (!spec.facts.unit.empty()) text += fmt::format(" Unit: {}.", spec.facts.unit);
  text += fmt::format(" Range: {}. Default: {}. Changed by: {}.", range_of(spec), preset.empty() ? "none" : preset,
                      changed_by(spec));
  if (!spec.facts.variable.empty()) text += fmt::format(" Environment: {}.", spec.facts.variable);
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
    const std::string preset = default_of(spec);
    // The one key that a file must have is printed with its example.
    const bool written = !preset.empty() || spec.key == "routing.shards";
    out += fmt::format("{}{}{}: {}\n", std::string(indent, ' '), written ? "" : "# ", spec.last_word(),
                       preset.empty() ? spec.facts.example : preset);
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
says how a key takes effect: setParameter is MongoDB's command; a reload is SIGHUP to the process, which replaces the
process if only a restart takes the key: clients stay connected.
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

std::string print_reference() {
  std::string out =
      "# The keys\n\n"
      "Made by `spillway --print-reference` from the table of keys; `--print-config` prints them as a file, `man "
      "spillway.yaml`\n"
      "as a manual page. *Changed by* says how a new value takes effect: `setParameter` is MongoDB's command, a reload "
      "is\n"
      "SIGHUP to the process, which replaces the process if only a restart takes the key: clients stay connected.\n"
      "Other keys of a `mongos.conf` set nothing: each is named when the file is read, and "
      "refused if it\n"
      "promises a protection that is not there.\n\n"
      "| key | default | range | changed by | meaning |\n|---|---|---|---|---|\n";
  for (const KeySpec& spec : config_keys()) {
    const std::string preset = default_of(spec);
    const std::string unit = spec.facts.unit.empty() ? "" : fmt::format(" {}", spec.facts.unit);
    std::string meaning(spec.meaning);
    if (!spec.facts.example.empty()) meaning += fmt::format(" Example: `{}`.", spec.facts.example);
    if (!spec.facts.variable.empty()) meaning += fmt::format(" Environment: `{}`.", spec.facts.variable);
    out += fmt::format("| `{}` | {} | {}{} | {} | {} |\n", spec.key, preset.empty() ? "" : fmt::format("`{}`", preset),
                       absl::StrReplaceAll(range_of(spec), {{"|", "\\|"}, {"*", "\\*"}}), unit, changed_by(spec),
                       absl::StrReplaceAll(meaning, {{"*", "\\*"}, {"|", "\\|"}}));
  }
  return out;
}

}  // namespace spillway
