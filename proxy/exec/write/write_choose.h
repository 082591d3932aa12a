// Writes of at most one document whose filter may match on several shards: a find chooses the
// document, the write is then sent to its shard with its _id added to the filter.
// Only ordinary commands are used.
//
// The two steps are not atomic. Between them another client may change the chosen document: if it no longer matches,
// or its place in the sort is another one, nothing is written and the choice is repeated. So what is written was the
// first when it was chosen; another document may have come before it since, as beside a transaction. No document is
// written that does not match the filter at that moment, and never two. One server also guarantees that an upsert and a
// concurrent insertion of a matching document exclude each other in time; this does not hold across shards.
#pragma once

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

// How often a choice is repeated because the document had changed or was gone.
inline constexpr int choices_max = 10;

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

// The statement's filter for the chosen document alone, as long as it matches `unchanged` and has the values that it is
// sorted by (those that are no arrays, nor within arrays). Operators that refer to array positions keep working.
BsonDoc narrow_filter(const Statement& statement, DocView chosen, DocView unchanged = {});
// Both filters at once.
BsonDoc both_filters(DocView one, DocView other);
// A filter that nothing matches.
BsonDoc match_nothing();
// Before the choice number `attempt`, from 0 on: clients that take the same documents one after the other get out of
// each other's way. Not beyond the request's deadline.
Task<void> pause_before_choice(Context& context, const Request& request, int attempt);
// "The chosen document changed every time": the error after ten attempts.
Error too_much_change();

// Shards below 6.0 write to documents that have moved away, too: what is asked of all of them may meet only those.
bool may_meet_orphans(const Context& context, const catalog::CollectionRouting& routing);

}  // namespace spillway::exec
