#include "proxy/server/tools/findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/catalog/yaml_values.h"

namespace spillway::server {

std::string_view severity_name(Severity severity) noexcept {
  constexpr std::string_view names[] = {"ok", "warning", "error"};
  return names[static_cast<std::size_t>(severity)];
}

std::size_t count(const Findings& findings, Severity severity) noexcept {
  return static_cast<std::size_t>(std::count_if(findings.begin(), findings.end(), [&](const Finding& finding) {
    return finding.severity == severity;
  }));
}

std::string print_findings(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<8} {}: {}\n", severity_name(finding.severity), finding.subject, finding.text);
    if (!finding.remedy.empty()) text += fmt::format("         -> {}\n", finding.remedy);
  }
  const auto many = [&](Severity severity, std::string_view word) {
    const std::size_t n = count(findings, severity);
    return fmt::format("{} {}{}", n == 0 ? "no" : std::to_string(n), word, n == 1 ? "" : "s");
  };
  return text + fmt::format("{}, {}\n", many(Severity::error, "error"), many(Severity::warning, "warning"));
}

std::string findings_json(const Findings& findings) {
  std::string text = fmt::format("{{\"errors\": {}, \"warnings\": {}, \"findings\": [",
                                 count(findings, Severity::error), count(findings, Severity::warning));
  for (const Finding& finding : findings) {
    text += fmt::format("{}\n  {{\"severity\": \"{}\", \"subject\": {}, \"text\": {}, \"remedy\": {}}}",
                        &finding == findings.data() ? "" : ",", severity_name(finding.severity),
                        catalog::json_string(finding.subject), catalog::json_string(finding.text),
                        catalog::json_string(finding.remedy));
  }
  return text + "\n]}\n";
}

}  // namespace spillway::server
