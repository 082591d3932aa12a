#include "proxy/pipeline/split/merge_pipeline.h"

namespace spillway::pipeline {

// Passes the output of stage number `stage` - 1 on.
class MergePipeline::Link final : public Sink {
 public:
  Link(MergePipeline& pipeline, std::size_t stage) : pipeline_(pipeline), stage_(stage) {}
  Result<void> push(DocView doc) override { return pipeline_.push_into(stage_, doc); }

 private:
  MergePipeline& pipeline_;
  std::size_t stage_;
};

MergePipeline::MergePipeline(std::vector<StagePtr> stages, MemoryBudget& budget,
                             std::uint64_t stage_bytes_limit, std::unique_ptr<Meter> parsed)
    : held_bytes_(std::make_unique<std::uint64_t>(0)),
      steps_left_(std::make_unique<std::uint64_t>(steps_max)),
      parsed_(std::move(parsed)),
      stages_(std::move(stages)),
      meter_(std::make_unique<Meter>(budget, "the output of the pipeline", stage_bytes_limit,
                                     held_bytes_.get())) {
  if (parsed_) *held_bytes_ = parsed_->used_bytes();
  for (const StagePtr& stage : stages_) stage->start(budget, stage_bytes_limit, held_bytes_.get(), steps_left_.get());
}

MergePipeline::~MergePipeline() = default;

Result<void> MergePipeline::push_into(std::size_t stage, DocView doc) {
  if (stage < stages_.size()) {
    if (!stages_[stage]->wants_more()) {
      return {};
    }
    Link next(*this, stage + 1);
    return stages_[stage]->push(doc, next);
  }
  if (auto charged = meter_->charge(doc.size() + sizeof(BsonDoc)); !charged) return charged;
  output_.emplace_back(doc);
  return {};
}

Result<void> MergePipeline::push(DocView doc) {
  if (auto valid = doc.validate(); !valid) return valid;
  while (emitter()) {  // full: the last document's results must leave first
    if (auto stepped = step(); !stepped) return stepped;
  }
  *steps_left_ = steps_max;
  return push_into(0, doc);
}

Result<void> MergePipeline::finish() {
  finished_ = true;
  return {};
}

bool MergePipeline::wants_more() const noexcept {
  if (finished_) return false;
  for (const StagePtr& stage : stages_) {
    if (!stage->wants_more()) return false;
  }
  return true;
}

std::optional<std::size_t> MergePipeline::emitter() const noexcept {
  for (std::size_t i = stages_.size(); i-- > draining_;) {
    if (stages_[i]->is_full()) return i;
    // The stages before a satisfied limit have no further output.
    if (!stages_[i]->wants_more()) return finished_ ? std::optional(i) : std::nullopt;
  }
  return finished_ && draining_ < stages_.size() ? std::optional(draining_) : std::nullopt;
}

Result<void> MergePipeline::step() {
  const std::size_t stage = *emitter();
  Link next(*this, stage + 1);
  const bool full = stages_[stage]->is_full();
  *steps_left_ = steps_max;
  SPILLWAY_TRY(emitted, stages_[stage]->emit(next));
  if (finished_ && !full) draining_ = *emitted ? stage : stage + 1;
  return {};
}

std::optional<BsonDoc> MergePipeline::take() {
  if (output_.empty()) return std::nullopt;
  std::optional<BsonDoc> doc(std::move(output_.front()));
  output_.pop_front();
  meter_->credit(doc->size() + sizeof(BsonDoc));
  return doc;
}

Result<std::optional<BsonDoc>> MergePipeline::next() {
  while (busy()) {
    if (auto stepped = step(); !stepped) return stepped.error();
  }
  return take();
}

}  // namespace spillway::pipeline
