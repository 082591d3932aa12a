// Documents laid over one another: a later field replaces the value of an earlier one of its name,
// in the earlier one's place.
#pragma once

#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proxy/pipeline/value.h"

namespace spillway::pipeline {

// Keeps views: what was added must stay until build().
class FieldMerger {
 public:
  void add(DocView doc) {
    for (const Element& element : doc) {
      set(element.name, element);
    }
  }
  void set(std::string_view name, ValueView value) {
    const auto [at, inserted] = index_.try_emplace(name, fields_.size());
    if (inserted) {
      fields_.emplace_back(name, value);
    } else {
      fields_[at->second].second = value;
    }
  }
  Result<Value> build(Meter& meter) const {
    DocumentBuilder out;
    for (const auto& [name, value] : fields_) {
      out.add(name, value);
    }
    return std::move(out).finish(meter);
  }

 private:
  std::unordered_map<std::string_view, std::size_t> index_;
  std::vector<std::pair<std::string_view, ValueView>> fields_;
};

}  // namespace spillway::pipeline
