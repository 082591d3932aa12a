// The stages of the merge part: documents are pushed through a chain of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"
#include "cursor/error.h"
#include "proxy/pipeline/expressions/expression.h"
#include "proxy/pipeline/values/meter.h"

namespace spillway::pipeline {

// The receiver of a stage's output. A pushed document is valid during the call only.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual Result<void> push(DocView doc) = 0;
  // A document that the stage has put together: Overflow (15) if it is too deep. The next stages may recurse.
  Result<void> push_built(DocView doc) {
    auto checked = check_depth(doc);
    return checked ? push(doc) : checked;
  }
};

// One running stage. push() feeds it; after the last document emit() drains it until it returns false. One push or
// emit puts at most one document into `next`: a peer's data must not become unbounded work in one call. A stage is
// used for one run. Not thread-safe.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual std::string_view name() const noexcept = 0;
  virtual Result<void> push(DocView doc, Sink& next) = 0;
  // Puts at most one kept document into `next`; false when there is none left.
  virtual Result<bool> emit(Sink& next);
  // True: emit() is due before the next push.
  virtual bool is_full() const noexcept { return false; }
  // False: further documents have no effect.
  virtual bool wants_more() const noexcept { return true; }
  // Tells a blocking stage that a $limit follows it directly.
  virtual void expect_limit(std::int64_t) noexcept {}
  // Called once, before the first push. The budget, the total and the steps outlive the stage.
  void start(MemoryBudget& budget, std::uint64_t bytes_max, std::uint64_t* total, std::uint64_t* steps_left) {
    meter_ = std::make_unique<Meter>(budget, name(), bytes_max, total, steps_left);
  }

 protected:
  Meter& meter() noexcept { return *meter_; }

 private:
  std::unique_ptr<Meter> meter_;
};
using StagePtr = std::unique_ptr<Stage>;

// The approximate memory of a stage, its meter included, besides its arguments.
inline constexpr std::uint64_t stage_cost_bytes = 512;

// A document is pushed from stage to stage on the stack, so their number must be bounded: by the server's bound.
inline constexpr std::size_t stages_max = 1000;
Result<void> check_stage_count(const std::vector<StagePtr>& stages);  // 7749501

// Parses one stage specification, `{$name: …}`, as the server would, and appends the stages that run it. Most stages
// become one Stage; $sortByCount becomes two. CommandNotSupported (115) for stages that are not evaluated here; the
// server's code for a malformed specification.
Result<void> parse_stage(DocView spec, const ParseScope& scope, std::vector<StagePtr>& out);
// All stages of a pipeline (the array).
Result<std::vector<StagePtr>> parse_stages(DocView pipeline, const ParseScope& scope);

// The arguments of $limit and $skip, checked.
Result<std::int64_t> parse_limit(ValueView value);
Result<std::int64_t> parse_skip(ValueView value);

// The stages one by one.
using StageParser = Result<StagePtr>(ValueView spec, const ParseScope& scope);
StageParser parse_match_stage, parse_project_stage, parse_add_fields_stage, parse_unset_stage, parse_replace_root_stage,
    parse_replace_with_stage, parse_limit_stage, parse_skip_stage, parse_count_stage, parse_unwind_stage,
    parse_sort_stage, parse_group_stage;

StagePtr make_limit_stage(std::int64_t limit);
StagePtr make_skip_stage(std::int64_t skip);
// Adds up the documents {field: n} that shards make of a $count.
StagePtr make_count_sum_stage(std::string field);
// The sort of a find, with a find's errors.
Result<StagePtr> make_sort_stage(DocView pattern);

// The field name of a $count stage, checked.
Result<std::string> parse_count_field(ValueView spec);

}  // namespace spillway::pipeline
