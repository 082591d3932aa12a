// What a shard sees of a command.
#pragma once

#include "cursor/bson_writer.h"
#include "proxy/shard/gateway.h"

namespace spillway::test {

// A body with the suffix that Connection puts into it.
inline BsonDoc with_suffix(DocView body, Bytes suffix) {
  BsonWriter out;
  out.append_elements(body);
  for (DocIterator each(suffix.data(), suffix.data() + suffix.size()); !each.done(); ++each) out.append_element(*each);
  return std::move(out).finish();
}

}  // namespace spillway::test
