// IdleList: idle cursors in the order of their last use, through links inside the cursors. All of a
// list share one time-out, so that the next to expire is the first: no cursor is looked at before
// its time, and inserting and removing cost nothing that grows with their number.
//
// Owns nothing. Not thread-safe: the registry's stripe guards it.
#pragma once

#include "cursor/cursor.h"

namespace spillway {

class IdleList {
 public:
  ClusterCursor* first() const noexcept { return first_; }

  void push_back(ClusterCursor& cursor) noexcept {
    cursor.idle_before = last_;
    cursor.idle_after = nullptr;
    (last_ != nullptr ? last_->idle_after : first_) = &cursor;
    last_ = &cursor;
  }
  // REQUIRES that it is in this list.
  void remove(ClusterCursor& cursor) noexcept {
    (cursor.idle_before != nullptr ? cursor.idle_before->idle_after : first_) = cursor.idle_after;
    (cursor.idle_after != nullptr ? cursor.idle_after->idle_before : last_) = cursor.idle_before;
    cursor.idle_before = cursor.idle_after = nullptr;
  }

 private:
  ClusterCursor* first_ = nullptr;
  ClusterCursor* last_ = nullptr;
};

}  // namespace spillway
