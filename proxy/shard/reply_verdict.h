// What a shard's reply means for retries. Pure. Source: mongos behaviour reference, sections 6.6
// and 7.3.
#pragma once

#include <cstdint>

#include "cursor/bson_view.h"
#include "proxy/shard/gateway.h"

namespace spillway::shard {

struct ReplyVerdict {
  bool well_formed = true;              // the top level, as far as it was looked at
  std::int32_t code = 0;                // of an error; 0: ok
  std::int32_t write_concern_code = 0;  // of its writeConcernError; 0: none
  bool good() const noexcept { return well_formed && code == 0 && write_concern_code == 0; }
};
ReplyVerdict judge_reply(DocView reply) noexcept;

// The reply with its writeConcernError relabelled as HostUnreachable(6): a write was executed, and
// its concern failed with a code that describes the shard and would make a driver take the proxy
// for down. Errors: ExceededMemoryLimit(146).
Result<Buffer> relabel_write_concern_error(const Reply& reply, MemoryBudget& budget);

}  // namespace spillway::shard
