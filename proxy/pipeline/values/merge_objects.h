// Documents laid over one another: a later field replaces the value of an earlier one of its name,
// in the earlier one's place.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/pipeline/values/value.h"

namespace spillway::pipeline {

// Keeps views: what was added must stay until build(). `meter`, which outlives it, pays for each field, whose entries
// may be larger than the field.
class FieldMerger {
 public:
  explicit FieldMerger(Meter& meter) noexcept : meter_(meter) {}
  FieldMerger(const FieldMerger&) = delete;
  FieldMerger& operator=(const FieldMerger&) = delete;
  ~FieldMerger() { meter_.credit(fields_.size() * field_bytes); }

  Result<void> add(DocView doc) {
    for (const Element& element : doc) {
      if (auto added = set(element.name, element); !added) return added;
    }
    return {};
  }
  Result<void> set(std::string_view name, ValueView value) {
    if (const auto found = index_.find(name); found != index_.end()) {
      fields_[found->second].second = value;
      return {};
    }
    if (auto charged = meter_.charge(field_bytes); !charged) return charged;
    index_.emplace(name, fields_.size());
    fields_.emplace_back(name, value);
    return {};
  }
  // Charges the meter with the result.
  Result<Value> build() const {
    DocumentBuilder out;
    for (const auto& [name, value] : fields_) out.add(name, value);
    return std::move(out).finish(meter_);
  }

 private:
  using Field = std::pair<std::string_view, ValueView>;
  // Both grow by doubling: half of their room may be empty, and while one grows the old half stands beside the new one.
  static constexpr std::uint64_t field_bytes =
      2 * (sizeof(Field) + sizeof(std::pair<std::string_view, std::size_t>) + 1);

  Meter& meter_;
  absl::flat_hash_map<std::string_view, std::size_t> index_;
  std::vector<Field> fields_;
};

}  // namespace spillway::pipeline
