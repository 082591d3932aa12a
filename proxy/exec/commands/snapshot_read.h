// Reads of several shards at one time, outside transactions: readConcern level snapshot, in clusters of 5.0 and later.
#pragma once

#include <cstdint>

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

// The time that a client's read asks for, or leaves to the router.
class SnapshotTime {
 public:
  // InvalidOptions(72): servers below 5.0, stages that read at no snapshot, times that contradict each other.
  // TypeMismatch(14).
  static Result<SnapshotTime> of(const Context& context, const Request& request);

  // Gives the request its time for one more try: the client's, or the cluster's now. The request refers to this.
  void give(const Context& context, Request& request);
  // A shard, or this router, cannot read at that time. Is a newer one worth a try?
  bool may_choose_again(std::int32_t failure) const noexcept;

 private:
  std::uint64_t client_chose_ = 0;  // 0: the router chooses
  std::uint64_t not_before_ = 0;
  bool once_ = false;  // it may have written
  BsonDoc concern_;    // {readConcern: {…}}
};

}  // namespace spillway::exec
