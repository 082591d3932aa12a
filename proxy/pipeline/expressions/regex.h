// Regular expressions of queries, by PCRE2 (the server's own library). The only door to it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cursor/error.h"
#include "proxy/pipeline/values/meter.h"

namespace spillway::pipeline {

// Compiled; copies share it. Immutable: any thread may match with it.
class Regex {
 public:
  // Options: i, m, s, x, and u, which has no effect. 51108 for another, 51091 for a bad pattern, BadValue for one
  // that is longer than the server takes.
  static Result<Regex> compile(std::string_view pattern, std::string_view options);

  // Does the pattern occur in `text`? OperationFailed when the match, or the meter's document, takes too many steps.
  Result<bool> matches(std::string_view text, Meter& meter) const;
  // Its memory, the compiled form included.
  std::size_t size_bytes() const noexcept;
  // The same pattern and the same options.
  bool same_as(std::string_view pattern, std::string_view options) const noexcept {
    return pattern == pattern_ && options == options_;
  }

 private:
  Regex() = default;
  std::string pattern_;
  std::string options_;
  std::shared_ptr<const void> code_;
};

}  // namespace spillway::pipeline
