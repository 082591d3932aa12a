// Views over sharded collections: a shard cannot run them, and says what they stand for.
#pragma once

#include "cursor/bson_writer.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// A find, count, distinct or aggregate of a view, as an aggregation of the collection below it. `view`: {ns, pipeline,
// collation?}. Empty: another command. InvalidPipelineOperator(168), as a server's, for an option that an aggregation
// does not have.
Result<BsonDoc> aggregation_over_view(DocView command, DocView view);

// {n, ok: 1} and {values, ok: 1}, of the aggregations that a count and a distinct became. REQUIRES a whole answer.
Response count_of_view(const Response& aggregation);
Response distinct_of_view(const Response& aggregation);

}  // namespace spillway::exec
