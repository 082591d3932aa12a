// IdleList: idle cursors in the order of their last use, linked through members of the cursors. All cursors of a list
// have the same time-out, so the first one expires next. Inserting and removing take constant time.
//
// Owns nothing. Not thread-safe: the registry's stripe guards it.
#pragma once

#include "cursor/cursor.h"

namespace spillway {

class IdleList {
 public:
  ClusterCursor* first() const noexcept { return first_; }

  void push_back(ClusterCursor& cursor) noexcept {
    cursor.idle.before_ = last_;
    cursor.idle.after_ = nullptr;
    (last_ != nullptr ? last_->idle.after_ : first_) = &cursor;
    last_ = &cursor;
  }
  // REQUIRES that it is in this list.
  void remove(ClusterCursor& cursor) noexcept {
    (cursor.idle.before_ != nullptr ? cursor.idle.before_->idle.after_ : first_) = cursor.idle.after_;
    (cursor.idle.after_ != nullptr ? cursor.idle.after_->idle.before_ : last_) = cursor.idle.before_;
    cursor.idle.before_ = cursor.idle.after_ = nullptr;
  }

 private:
  ClusterCursor* first_ = nullptr;
  ClusterCursor* last_ = nullptr;
};

}  // namespace spillway
