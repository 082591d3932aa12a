// Query filters: `find`'s filter and `$match`.
#pragma once

#include <memory>

#include "cursor/bson_view.h"
#include "cursor/error.h"
#include "proxy/pipeline/expressions/expression.h"
#include "proxy/pipeline/values/meter.h"

namespace spillway::pipeline {

struct MatchNode;

// A parsed filter. Movable; immutable, so that any thread may match with it. Owns its operands.
class Filter {
 public:
  Filter() noexcept;  // matches everything
  Filter(Filter&&) noexcept;
  Filter& operator=(Filter&&) noexcept;
  ~Filter();

  // The server's code for a malformed filter (mostly BadValue), CommandNotSupported (115) for operators that are not
  // evaluated here ($where, $text, geo operators…).
  static Result<Filter> parse(DocView filter, const ParseScope& scope = {});

  // `meter` pays for the values of $expr. Errors come from $expr and from a regular expression that exceeds its step
  // limit.
  Result<bool> matches(DocView doc, Meter& meter) const;

 private:
  explicit Filter(std::unique_ptr<MatchNode> root) noexcept;
  std::unique_ptr<MatchNode> root_;  // nullptr: everything
};

}  // namespace spillway::pipeline
