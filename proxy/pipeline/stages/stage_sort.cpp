// $sort in memory.

#include <algorithm>
#include <utility>
#include <vector>

#include "cursor/sort_pattern.h"
#include "proxy/pipeline/stages/stage.h"
#include "proxy/pipeline/values/number.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

// Keeps every document or, when a limit is known, a few more than that: in sorted runs, which are merged on output,
// so that no single sort is long. Equal keys keep their order.
class SortStage final : public Stage {
 public:
  explicit SortStage(SortPattern pattern) : pattern_(std::move(pattern)) {}
  std::string_view name() const noexcept override { return "$sort"; }

  void expect_limit(std::int64_t limit) noexcept override {
    const auto most = static_cast<std::uint64_t>(limit);  // at least 1
    limit_ = std::min(limit_, most);
    run_entries_max_ = std::min(run_entries_max_, limit_ + 64);
  }

  Result<void> push(DocView doc, Sink&) override {
    Entry entry;
    if (auto keyed = pattern_.append_key(entry.key, doc); !keyed) return keyed;
    entry.number = count_++;
    if (in_runs_ >= limit_ && runs_.front().entries.back() < entry) {
      return {};
    }
    entry.doc = BsonDoc(doc);
    if (auto charged = meter().charge(cost(entry)); !charged) return charged;
    gathered_.push_back(std::move(entry));
    if (gathered_.size() >= run_entries_max_) end_run();
    return {};
  }

  Result<bool> emit(Sink& next) override {
    if (!emits_) {
      emits_ = true;
      end_run();
      std::make_heap(runs_.begin(), runs_.end(), first_is_later);
    }
    if (runs_.empty()) return false;
    std::pop_heap(runs_.begin(), runs_.end(), first_is_later);
    Run& run = runs_.back();
    const Entry entry = std::move(run.entries[run.at++]);
    if (run.at == run.entries.size()) {
      runs_.pop_back();
    } else {
      std::push_heap(runs_.begin(), runs_.end(), first_is_later);
    }
    auto pushed = next.push(entry.doc);
    meter().credit(cost(entry));
    if (!pushed) return pushed.error();
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
  struct Run {
    std::vector<Entry> entries;  // sorted
    std::size_t at = 0;          // the entries before it have been returned
  };
  static bool first_is_later(const Run& a, const Run& b) noexcept { return b.entries[b.at] < a.entries[a.at]; }
  static bool last_is_earlier(const Run& a, const Run& b) noexcept { return a.entries.back() < b.entries.back(); }
  static std::uint64_t cost(const Entry& entry) noexcept {
    return entry.key.size() + entry.doc.size() + 2 * sizeof(Entry);
  }

  void end_run() {
    if (gathered_.empty()) return;
    std::sort(gathered_.begin(), gathered_.end());
    in_runs_ += gathered_.size();
    runs_.push_back({std::exchange(gathered_, {})});
    if (limit_ == no_limit) return;
    // A heap by the last entries: those beyond the limit are dropped.
    std::push_heap(runs_.begin(), runs_.end(), last_is_earlier);
    for (; in_runs_ > limit_; --in_runs_) {
      std::pop_heap(runs_.begin(), runs_.end(), last_is_earlier);
      std::vector<Entry>& entries = runs_.back().entries;
      meter().credit(cost(entries.back()));
      entries.pop_back();
      if (entries.empty()) {
        runs_.pop_back();
        continue;
      }
      if (entries.size() <= entries.capacity() / 2) entries.shrink_to_fit();
      std::push_heap(runs_.begin(), runs_.end(), last_is_earlier);
    }
  }

  static constexpr std::uint64_t no_limit = ~std::uint64_t{0};

  SortPattern pattern_;
  std::uint64_t limit_ = no_limit;
  std::uint64_t run_entries_max_ = 512;  // sorted in about 100 µs
  std::vector<Entry> gathered_;          // the next run
  std::vector<Run> runs_;                // none is empty
  std::uint64_t in_runs_ = 0;
  std::uint64_t count_ = 0;
  bool emits_ = false;
};

Result<void> check_pattern(DocView pattern) {
  if (pattern.empty()) return Error(15976, "$sort stage must have at least one sort key");
  for (const Element& element : pattern) {
    if (element.is_document()) {
      return element.as_document().first().name == "$meta"
                 ? unsupported_error("the sort by", "$meta")
                 : Error(17312, "$meta is the only expression supported by $sort right now");
    }
    if (!element.is_number()) {
      return Error(15974, join("Illegal key in $sort specification: ", element.name, ": ",
                               to_json(element)));
    }
    const auto direction = whole_int64(element);
    if (!direction || (*direction != 1 && *direction != -1)) {
      return Error(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)");
    }
    if (auto path = split_field_path(element.name); !path) return path.error();
  }
  return {};
}

}  // namespace

Result<StagePtr> parse_sort_stage(ValueView spec, const ParseScope&) {
  if (!spec.is_document()) return Error(15973, "the $sort key specification must be an object");
  if (auto checked = check_pattern(spec.as_document()); !checked) return checked.error();
  return make_sort_stage(spec.as_document());
}

Result<StagePtr> make_sort_stage(DocView pattern) {
  SPILLWAY_TRY(parsed, SortPattern::parse(pattern));
  return std::make_unique<SortStage>(std::move(*parsed));
}

}  // namespace spillway::pipeline
