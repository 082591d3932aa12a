#include "proxy/pipeline/expressions/ops.h"

#include <unordered_map>

namespace spillway::pipeline {

const OperatorSpec* find_operator(std::string_view name) noexcept {
  static const auto* const table = [] {
    auto* all = new std::unordered_map<std::string_view, const OperatorSpec*>;
    for (const auto family :
         {arithmetic_operators(), comparison_operators(), string_operators(), array_operators(),
          object_operators(), type_operators(), date_operators()}) {
      for (const OperatorSpec& spec : family) all->emplace(spec.name, &spec);
    }
    return all;
  }();
  const auto found = table->find(name);
  return found == table->end() ? nullptr : found->second;
}

}  // namespace spillway::pipeline
