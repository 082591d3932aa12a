// Views over sharded collections: a shard cannot run them, and says what they stand for.
#pragma once

#include "cursor/bson_writer.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// A find, count, distinct or aggregate of a view, as an aggregation of the collection below it. `view`: {ns, pipeline,
// collation?}. Empty: another command. InvalidPipelineOperator(168), as a server's, for an option that an aggregation
// does not have. `flags`: all shards know what 5.2 has added to the stage that unpacks buckets.
Result<BsonDoc> aggregation_over_view(DocView command, DocView view, bool flags);

// The aggregation of a time series' buckets, which says how long one is: as the routing table says it, since a shard
// checks that table's version only. Empty: it says so already, or is another aggregation.
BsonDoc with_bucket_span(DocView aggregation, std::int64_t span_s);

// {n, ok: 1} and {values, ok: 1}, of the aggregations that a count and a distinct became. REQUIRES a whole answer.
Response count_of_view(const Response& aggregation);
Response distinct_of_view(const Response& aggregation);

}  // namespace spillway::exec
