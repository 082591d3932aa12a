// The stages of the merge part: documents are pushed through a chain of them.
#pragma once

#include <memory>
#include <string_view>

#include "cursor/bson_view.h"
#include "cursor/error.h"
#include "proxy/exec/pipeline/expression.h"
#include "proxy/exec/pipeline/meter.h"

namespace spillway::pipeline {

// Where a stage puts its output. A pushed document is valid during the call only.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual Result<void> push(DocView doc) = 0;
};

// One running stage. Fed by push(), then, after the last document, drained by emit() until it
// answers false. A stage is used for one run. Not thread-safe.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual std::string_view name() const noexcept = 0;
  virtual Result<void> push(DocView doc, Sink& next) = 0;
  // Puts at most one kept document into `next`; false when there is none left.
  virtual Result<bool> emit(Sink& next);
  // False: nothing pushed from now on can have an effect.
  virtual bool wants_more() const noexcept { return true; }
  // Called once, before the first push. The budget outlives the stage.
  void start(MemoryBudget& budget, std::uint64_t bytes_max) {
    meter_ = std::make_unique<Meter>(budget, name(), bytes_max);
  }

 protected:
  Meter& meter() noexcept { return *meter_; }

 private:
  std::unique_ptr<Meter> meter_;
};
using StagePtr = std::unique_ptr<Stage>;

// Parses one stage specification, `{$name: …}`, as the server would. CommandNotSupported (115) for
// what is not evaluated here; the server's code for a malformed specification.
// $count and $sortByCount become one stage each.
Result<StagePtr> parse_stage(DocView spec, const ParseScope& scope);

}  // namespace spillway::pipeline
