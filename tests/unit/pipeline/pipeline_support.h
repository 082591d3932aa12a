// Shorthands of the pipeline tests: documents as Extended JSON, runs over a budget.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/budget.h"
#include "cursor/bson_writer.h"
#include "proxy/pipeline/expressions/expression.h"
#include "proxy/pipeline/split/merge_pipeline.h"
#include "proxy/pipeline/stages/match.h"
#include "tests/support/run_query.h"

namespace spillway::pipeline::test {

inline BsonDoc json(std::string_view text) {
  auto doc = BsonDoc::from_json(text);
  INFO(text);
  REQUIRE(doc.has_value());
  return std::move(*doc);
}

// An array is kept inside a document: {"a": [...]}.
inline std::vector<BsonDoc> docs(std::string_view array) {
  const BsonDoc holder = json("{\"a\": " + std::string(array) + "}");
  std::vector<BsonDoc> out;
  for (const Element& element : holder.view()["a"].as_document()) {
    out.emplace_back(element.as_document());
  }
  return out;
}

inline std::string text(const std::vector<BsonDoc>& list) {
  std::string out = "[";
  for (const BsonDoc& doc : list) {
    out += (out.size() > 1 ? ", " : "") + to_json(doc.view());
  }
  return out + "]";
}

// The bytes of an array, as a pipeline.
inline BsonDoc stages(std::string_view array) {
  const BsonDoc holder = json("{\"a\": " + std::string(array) + "}");
  return BsonDoc(holder.view()["a"].as_document());
}

struct Budget {
  explicit Budget(std::uint64_t limit_bytes = 0) : budget("test", limit_bytes) {}
  MemoryBudget budget;
};

// The value of an expression, as {"r": value} in JSON; "{ }" when it is missing; "error N".
inline std::string evaluate(std::string_view expression, std::string_view doc_text = "{}") {
  Budget budget;
  const BsonDoc spec = json("{\"e\": " + std::string(expression) + "}");
  const BsonDoc doc = json(doc_text);
  auto parsed = parse_expression(spec.view()["e"], ParseScope());
  if (!parsed) {
    return "error " + std::to_string(parsed.error().code);
  }
  Meter meter(budget.budget, "test");
  EvalContext context{doc, meter, {}};
  auto value = (*parsed)->evaluate(context);
  if (!value) {
    return "error " + std::to_string(value.error().code);
  }
  BsonWriter writer;
  if (!value->missing()) {
    writer.append("r", value->view());
  }
  return to_json(std::move(writer).finish());
}

// What evaluate() should give for a value written in JSON, its numeric type included.
inline std::string value(std::string_view text) {
  return to_json(json("{\"r\": " + std::string(text) + "}"));
}

inline std::vector<BsonDoc> run(const std::vector<BsonDoc>& input, std::string_view pipeline) {
  Budget budget;
  const BsonDoc spec = stages(pipeline);
  auto result = run_pipeline(input, spec, budget.budget);
  INFO(pipeline);
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result.has_value());
  return std::move(*result);
}

inline int run_error(const std::vector<BsonDoc>& input, std::string_view pipeline) {
  Budget budget;
  const BsonDoc spec = stages(pipeline);
  auto result = run_pipeline(input, spec, budget.budget);
  return result ? 0 : result.error().code;
}

}  // namespace spillway::pipeline::test
