// What `spillway doctor` finds: a list of findings, as text for people and as JSON for scripts. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::server {

enum class Severity : std::uint8_t { ok, warning, error };
std::string_view severity_name(Severity severity) noexcept;

struct Finding {
  Severity severity = Severity::ok;
  std::string subject;  // a key, or a shard and its host
  std::string text;     // what is so, and what follows
  std::string remedy;   // the command or the key that mends it; empty where all is well

  bool operator==(const Finding&) const = default;
};
using Findings = std::vector<Finding>;

inline void add_all(Findings& to, Findings more) {
  for (Finding& finding : more) to.push_back(std::move(finding));
}
std::size_t count(const Findings& findings, Severity severity) noexcept;

// A line for each, its remedy below it, and a line with the sums.
std::string print_findings(const Findings& findings);
// {"errors": n, "warnings": n, "findings": [{severity, subject, text, remedy}, …]}, and a newline.
std::string findings_json(const Findings& findings);

}  // namespace spillway::server
