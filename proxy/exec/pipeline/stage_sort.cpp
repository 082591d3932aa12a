// $sort in memory.

#include <iterator>
#include <optional>
#include <set>

#include "cursor/sort_pattern.h"
#include "proxy/exec/pipeline/number.h"
#include "proxy/exec/pipeline/stage.h"
#include "proxy/exec/pipeline/text.h"

namespace spillway::pipeline {
namespace {

// Keeps every document, or as many as a limit that is known, in their order: nothing is left to be sorted at once.
// Equal keys keep their order.
class SortStage final : public Stage {
 public:
  explicit SortStage(SortPattern pattern) : pattern_(std::move(pattern)) {}
  std::string_view name() const noexcept override { return "$sort"; }

  void expect_limit(std::int64_t limit) noexcept override {
    if (!limit_ || *limit_ > limit) {
      limit_ = limit;
    }
  }

  Result<void> push(DocView doc, Sink&) override {
    Entry entry;
    if (auto keyed = pattern_.append_key(entry.key, doc); !keyed) {
      return keyed;
    }
    entry.number = count_++;
    if (limit_ && entries_.size() >= static_cast<std::uint64_t>(*limit_)) {
      const auto last = std::prev(entries_.end());
      if (*last < entry) {
        return {};
      }
      meter().credit(cost(*last));
      entries_.erase(last);
    }
    entry.doc = BsonDoc(doc);
    if (auto charged = meter().charge(cost(entry)); !charged) {
      return charged;
    }
    entries_.insert(entries_.end(), std::move(entry));  // most come in order, or nearly
    return {};
  }

  Result<bool> emit(Sink& next) override {
    if (entries_.empty()) {
      return false;
    }
    const auto node = entries_.extract(entries_.begin());
    auto pushed = next.push(node.value().doc);
    meter().credit(cost(node.value()));
    if (!pushed) {
      return pushed.error();
    }
    return true;
  }

 private:
  struct Entry {
    std::string key;
    std::uint64_t number = 0;  // of arrival
    BsonDoc doc;
    bool operator<(const Entry& other) const noexcept {
      const int order = key.compare(other.key);
      return order != 0 ? order < 0 : number < other.number;
    }
  };
  static std::uint64_t cost(const Entry& entry) noexcept {
    return entry.key.size() + entry.doc.size() + 2 * sizeof(Entry);
  }

  SortPattern pattern_;
  std::optional<std::int64_t> limit_;  // at least 1
  std::set<Entry> entries_;
  std::uint64_t count_ = 0;
};

Result<void> check_pattern(DocView pattern) {
  if (pattern.empty()) {
    return Error(15976, "$sort stage must have at least one sort key");
  }
  for (const Element& element : pattern) {
    if (element.is_document()) {
      return element.as_document().first().name == "$meta"
                 ? unsupported_error("the sort by", "$meta")
                 : Error(15974,
                         "$sort key ordering must be specified using a number or {$meta: "
                         "'textScore'}");
    }
    if (!element.is_number()) {
      return Error(15974, join("Illegal key in $sort specification: ", element.name, ": ",
                               to_json(element)));
    }
    const auto direction = whole_int64(element);
    if (!direction || (*direction != 1 && *direction != -1)) {
      return Error(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)");
    }
    if (auto path = split_field_path(element.name); !path) {
      return path.error();
    }
  }
  return {};
}

}  // namespace

Result<StagePtr> parse_sort_stage(ValueView spec, const ParseScope&) {
  if (!spec.is_document()) {
    return Error(15973, "the $sort key specification must be an object");
  }
  if (auto checked = check_pattern(spec.as_document()); !checked) {
    return checked.error();
  }
  return make_sort_stage(spec.as_document());
}

Result<StagePtr> make_sort_stage(DocView pattern) {
  auto parsed = SortPattern::parse(pattern);
  if (!parsed) {
    return parsed.error();
  }
  return std::make_unique<SortStage>(std::move(*parsed));
}

}  // namespace spillway::pipeline
