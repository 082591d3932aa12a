// The find command's arguments, and the common part of find and aggregate: targeting and opening cursors on shards.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/cursors/working_set.h"

namespace spillway::exec {

// Views into the request.
struct FindArguments {
  std::string_view collection;
  DocView filter, sort, projection;
  std::int64_t limit = 0, skip = 0;
  FirstBatch first;
  bool tailable = false, await_data = false;
  bool no_cursor_timeout = false, allow_partial = false;
  ValueView collation;
};

// Errors: InvalidNamespace(73), TypeMismatch(14), 51024 for negative numbers, FailedToParse(9), BadValue(2).
// `fields`: of the body, or of another document; null: there is none.
Result<FindArguments> parse_find(DocView body, const ElementIndex* fields = nullptr);

// The limit for each of several shards when the skip is done here: the sum, or Overflow(15).
Result<std::int64_t> shard_limit(std::int64_t limit, std::int64_t skip);

// The shards of a read with this filter and collation: chunk owners, or the primary shard if the collection is not
// sharded.
Result<Targets> read_targets(const Request& request, std::string_view db, std::string_view collection, DocView filter,
                             ValueView collation);

// Opens the cursor on these shards in parallel with the command `body`. After an error some may be open: end the
// cursor. It takes the cursor's working set for the first replies before; nullopt: their size is not known, and memory
// is taken only while it is scarce.
Task<std::optional<Error>> open_remotes(Context& context, const Request& request, ClusterCursor& cursor,
                                        const Targets& targets, DocView body,
                                        std::optional<FirstReplies> first = std::nullopt);

}  // namespace spillway::exec
