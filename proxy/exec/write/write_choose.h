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

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/shard_call.h"
#include "proxy/exec/write/write_target.h"

namespace spillway::exec {

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
// Shards below 6.0 write to documents that have moved away, too: what is asked of all of them may meet only those.
bool may_meet_orphans(const Context& context, const catalog::CollectionRouting& routing);
// Of an upsert that nothing matched: it cannot meet those either. nullopt: the client's query.
std::optional<BsonDoc> query_of_upsert(const Context& context, const catalog::CollectionRouting& routing,
                                       const Statement& statement, const UpsertPlan& plan);

// The choices of one write: the next one each time that the write has found nothing, since another client's write came
// first. Everything outlives it.
class Choices {
 public:
  Choices(Context& context, std::string_view collection, const Statement& statement,
          const catalog::CollectionRouting& routing, const WriteTarget& target);

  struct Next {
    bool found = false;
    catalog::ShardIndex shard = 0;
    BsonDoc query;               // the filter to write with, on this shard
    std::optional<Error> error;  // none, and nothing is found: nothing matches
    // The error is that of the find, as opposed to the router's own: the update would change a key, the operation was
    // killed, or WriteConflict(112) after 30 seconds.
    bool by_find = false, lost = false;
  };
  // Pauses before all but the first, so that clients that take the same documents get out of each other's way.
  Task<Next> next(const Request& request);

 private:
  Task<std::optional<Error>> wait(const Request& request);

  Context& context_;
  std::string_view collection_;
  const Statement& statement_;
  const catalog::CollectionRouting& routing_;
  const WriteTarget& target_;
  TimePoint began_ = Clock::now();
  std::size_t made_ = 0;
};

}  // namespace spillway::exec
