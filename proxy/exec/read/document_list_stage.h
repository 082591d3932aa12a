// A cursor over documents in memory: merged listings, and reads of the config database.
#pragma once

#include <deque>
#include <vector>

#include "cursor/cursor.h"

namespace spillway::exec {

// REQUIRES: ClusterCursor::stage_finished is set, because no document is ever pushed.
class DocumentListStage final : public DocumentStage {
 public:
  explicit DocumentListStage(std::vector<BsonDoc> documents)
      : documents_(std::make_move_iterator(documents.begin()), std::make_move_iterator(documents.end())) {}
  Result<void> push(DocView) override { return {}; }
  Result<void> finish() override { return {}; }
  Result<const BsonDoc*> front() override { return documents_.empty() ? nullptr : &documents_.front(); }
  BsonDoc pop() override {
    BsonDoc head = std::move(documents_.front());
    documents_.pop_front();
    return head;
  }
  bool wants_more() const override { return false; }
  bool exhausted() const override { return documents_.empty(); }
  std::size_t held_bytes() const noexcept override { return 0; }  // the cursor has paid for them

 private:
  std::deque<BsonDoc> documents_;
};

}  // namespace spillway::exec
