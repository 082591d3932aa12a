#include "proxy/pipeline/expressions/regex.h"
#include "proxy/pipeline/values/text.h"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace spillway::pipeline {
namespace {

// The limit of backtracking: the worker has other requests.
constexpr std::uint32_t match_steps_max = 2'000'000;
// PCRE2 does not tell how many it took. So a match begins with a small limit, and is tried again with a larger one.
constexpr std::uint32_t match_steps_first = 256;
constexpr std::uint32_t match_steps_growth = 8;
constexpr std::size_t pattern_bytes_max = 32'764;  // the server's
constexpr std::uint32_t match_heap_kib_max = 8 * 1024;

pcre2_match_context* match_limits(std::uint32_t steps) {
  thread_local const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>
      limits(pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  if (limits != nullptr) {
    pcre2_set_match_limit(limits.get(), steps);
    pcre2_set_heap_limit(limits.get(), match_heap_kib_max);
  }
  return limits.get();
}

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern, std::string_view options) {
  std::uint32_t flags = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF;
  for (const char option : options) {
    switch (option) {
      case 'i':
        flags |= PCRE2_CASELESS;
        break;
      case 'm':
        flags |= PCRE2_MULTILINE;
        break;
      case 's':
        flags |= PCRE2_DOTALL;
        break;
      case 'x':
        flags |= PCRE2_EXTENDED;
        break;
      case 'u':
        break;
      default:
        return Error(51108, join("invalid flag in regex options: ", std::string_view(&option, 1)));
    }
  }
  if (pattern.size() > pattern_bytes_max) return Error(ErrorCode::bad_value, "Regular expression is too long");
  int code = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                       flags, &code, &at, nullptr);
  if (compiled == nullptr) {
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(code, text, sizeof text);
    return Error(51091,
                 join("Regular expression is invalid: ", reinterpret_cast<const char*>(text)));
  }
  Regex regex;
  regex.pattern_ = pattern;
  regex.options_ = options;
  regex.code_ = std::shared_ptr<const void>(compiled, [](const void* p) {
    pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p)));
  });
  return regex;
}

std::size_t Regex::size_bytes() const noexcept {
  std::size_t compiled = 0;
  pcre2_pattern_info(static_cast<const pcre2_code*>(code_.get()), PCRE2_INFO_SIZE, &compiled);
  return sizeof(Regex) + pattern_.size() + compiled;
}

Result<bool> Regex::matches(std::string_view text, Meter& meter) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  std::uint32_t limit = match_steps_first;
  int found = PCRE2_ERROR_MATCHLIMIT;
  for (;; limit = std::min(limit * match_steps_growth, match_steps_max)) {
    // A step of PCRE2 is a quarter of one of the meter.
    if (!meter.spend(limit / 32 + steps_of_bytes(text.size()))) return too_many_steps_error();
    found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(),
                        match_limits(limit));
    if (found != PCRE2_ERROR_MATCHLIMIT || limit == match_steps_max) break;
    if (!meter.spend(limit / 4)) return too_many_steps_error();
  }
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return Error(ErrorCode::operation_failed, join("the regular expression /", pattern_,
                                                 "/ took too many steps or too much memory"));
}

}  // namespace spillway::pipeline
