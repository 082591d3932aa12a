// Writes of at most one document whose filter may match on several shards: a find chooses the document, the write is
// then sent to its shard, for that document or, where any will do, for one of that shard. Only ordinary commands are
// used.
//
// The write is one atomic operation of one shard, and the filter is compared once more within it. If the chosen
// document no longer matches, or its place in the sort is another one, nothing is written and the choice is repeated.
// So no document is written that does not match, and never two. What is written was the first when it was chosen; one
// that comes before it may have been stored since, on another shard: in a transaction, whose shards read at times of
// their own, too. One server also guarantees that an upsert and a concurrent insertion of a matching document exclude
// each other in time; this does not hold across shards, nor in a transaction.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/shard_call.h"
#include "proxy/exec/write/write_parse.h"

namespace spillway::exec {

// For so long a choice is repeated because the document had changed or was gone. Each time another client's write has
// gone through.
inline constexpr auto choosing_time_max = std::chrono::seconds(30);

struct Choice {
  catalog::ShardIndex shard = 0;
  BsonDoc document;  // holds the chosen one's _id
};

struct ChoiceOutcome {
  std::optional<Choice> choice;  // none: nothing matches
  std::optional<Error> error;
  bool lost = false;  // the shard did not answer, as opposed to refusing
};

// Finds the document that a single-document write with this filter and sort would write. The result holds the fields
// needed to sort it and to find it again, and these paths.
Task<ChoiceOutcome> choose_document(Context& context, const Request& request,
                                    std::string_view collection, const Statement& statement,
                                    const catalog::ShardSet& shards, RoutedBy by,
                                    std::vector<std::string> paths);

// Both filters at once.
BsonDoc both_filters(DocView one, DocView other);
// A filter that nothing matches.
BsonDoc match_nothing();
// Before the choice number `attempt`, from 0 on, of a write that began then: pauses, so that clients that take the same
// documents one after the other get out of each other's way. An error: no more choices, for the operation was killed, or
// WriteConflict(112).
Task<std::optional<Error>> wait_for_choice(Context& context, const Request& request, std::size_t attempt,
                                           TimePoint began);
// The filter of the write: the statement's own if any document will do that the shard finds by it, else for the chosen
// one alone, as long as it has the values that it is sorted by. `unchanged`: it must match this, too; null: it need not.
BsonDoc filter_of_chosen(const Context& context, const catalog::CollectionRouting& routing, const Statement& statement,
                         DocView chosen, const BsonDoc* unchanged);

// Shards below 6.0 write to documents that have moved away, too: what is asked of all of them may meet only those.
bool may_meet_orphans(const Context& context, const catalog::CollectionRouting& routing);

}  // namespace spillway::exec
