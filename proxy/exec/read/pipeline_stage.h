// MergePipeline as a cursor's stage.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "cursor/cursor.h"
#include "proxy/pipeline/split/merge_pipeline.h"

namespace spillway::exec {

class PipelineStage final : public DocumentStage {
 public:
  PipelineStage(std::vector<pipeline::StagePtr> stages, std::unique_ptr<pipeline::Meter> parsed, MemoryBudget& budget)
      : merge_(std::move(stages), budget, pipeline::stage_bytes_max, std::move(parsed)) {}
  Result<void> push(DocView document) override { return merge_.push(document); }
  Result<void> finish() override { return merge_.finish(); }
  Result<const BsonDoc*> front() override {
    if (merge_.busy()) {
      if (auto stepped = merge_.step(); stepped.has_error()) return std::move(stepped.error());
    }
    return merge_.front();
  }
  BsonDoc pop() override { return *merge_.take(); }
  bool busy() const override { return merge_.busy(); }
  bool wants_more() const override { return merge_.wants_more(); }
  bool exhausted() const override { return merge_.exhausted(); }
  std::size_t held_bytes() const noexcept override { return merge_.held_bytes(); }

 private:
  pipeline::MergePipeline merge_;
};

}  // namespace spillway::exec
