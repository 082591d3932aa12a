// What a shard's reply means for retries. Pure.
#pragma once

#include <cstdint>

#include "cursor/bson_view.h"
#include "proxy/shard/gateway.h"

namespace spillway::shard {

struct ReplyVerdict {
  bool well_formed = true;              // the top level, as far as it was looked at
  std::int32_t code = 0;                // of an error; 0: ok
  std::int32_t inner_state_change = 0;  // the first state change in its writeErrors and writeConcernError; 0: none
  // Their values in the reply; null: there is none.
  const std::uint8_t* operation_time = nullptr;
  const std::uint8_t* cluster_time = nullptr;
  const std::uint8_t* cursor = nullptr;  // of its only `cursor`, if that is a document
  // As in Reply.
  bool says_ok = false;
  bool plain = false;
  bool good() const noexcept { return well_formed && code == 0 && inner_state_change == 0; }
};
ReplyVerdict judge_reply(DocView reply) noexcept;
// The same; the reply gets to know what was found. REQUIRES !streaming().
ReplyVerdict judge_reply(Reply& reply) noexcept;

// The reply with those of its writeErrors and its writeConcernError that describe the shard's state relabelled as
// HostUnreachable(6): their codes would make a driver take the proxy for down. Errors: ExceededMemoryLimit(146), the
// reply's own if it is malformed.
Result<Buffer> relabel_state_changes(const Reply& reply, MemoryBudget& budget);

}  // namespace spillway::shard
