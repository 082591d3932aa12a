// The merge part at work: documents in, documents out, one at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/pipeline/split/split.h"
#include "proxy/pipeline/stages/stage.h"

namespace spillway::pipeline {

// Pushes documents through stages. Use: push() the shards' documents in the order of the merge,
// taking the output with next() after every push so that little is kept; stop when wants_more() is
// false or the shards are exhausted; then finish(), and next() until it is empty. All of its memory is charged to the
// budget, which must outlive it. After an error only the destructor may be called. Movable; single-threaded.
class MergePipeline {
 public:
  // `parsed`: the meter of the stages themselves, if they are charged.
  MergePipeline(std::vector<StagePtr> stages, MemoryBudget& budget,
                std::uint64_t stage_bytes_limit = stage_bytes_max,
                std::unique_ptr<Meter> parsed = nullptr);
  MergePipeline(MergePipeline&&) noexcept = default;
  ~MergePipeline();

  // `doc` need not be valid after the call. InvalidBSON when it is malformed.
  // 292 when a stage exceeds its limit, 146 when the budget refuses.
  Result<void> push(DocView doc);
  // No more documents come. Idempotent.
  Result<void> finish();
  // False: a limit is satisfied; the upstream may be stopped and finish() called.
  bool wants_more() const noexcept;
  // The next document of the output, if there is one now. After finish() nullopt means the end.
  Result<std::optional<BsonDoc>> next();
  // The same in small steps: while busy(), step() gets nearer to the next document; front() is the one that is there
  // (null: none), and take() takes it.
  bool busy() const noexcept { return output_.empty() && emitter().has_value(); }
  Result<void> step();  // REQUIRES busy()
  const BsonDoc* front() const noexcept { return output_.empty() ? nullptr : &output_.front(); }
  std::optional<BsonDoc> take();
  // The bytes charged to the budget.
  std::uint64_t held_bytes() const noexcept { return *held_bytes_; }
  // After finish(): nothing is left.
  bool exhausted() const noexcept {
    return finished_ && draining_ == stages_.size() && output_.empty();
  }

 private:
  class Link;
  Result<void> push_into(std::size_t stage, DocView doc);
  // The stage whose turn it is to emit: the last that is full or, after finish(), the one being drained.
  std::optional<std::size_t> emitter() const noexcept;

  std::unique_ptr<std::uint64_t> held_bytes_;  // by all meters; stays where it is
  std::unique_ptr<std::uint64_t> steps_left_;  // of all stages, for one push or step
  std::unique_ptr<Meter> parsed_;  // of stages_
  std::vector<StagePtr> stages_;
  std::unique_ptr<Meter> meter_;  // of output_
  std::deque<BsonDoc> output_;
  std::size_t draining_ = 0;  // the stage being drained, after finish()
  bool finished_ = false;
};

}  // namespace spillway::pipeline
