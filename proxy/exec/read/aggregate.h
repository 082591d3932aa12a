// aggregate: the namespaces of its pipeline, and the shards that may run it.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/request.h"

namespace spillway::pipeline {
struct SplitPipeline;  // split.h
}

namespace spillway::exec {

// A collection that a stage reads or writes beside the main one, at any depth. Views into the pipeline.
struct InvolvedNamespace {
  std::string_view db;
  std::string_view collection;
  std::string_view stage;  // "$lookup", for messages
};

// Of $lookup, $graphLookup, $unionWith, $facet, $out and $merge, nested pipelines included (depth ≤ 20, else
// FailedToParse, as more than 1000 names).
Result<std::vector<InvolvedNamespace>> involved_namespaces(DocView pipeline, std::string_view db);

// Does this collection lie wholly on one shard, and is it that one?
bool lies_on(const Routes& routes, const InvolvedNamespace& ns, catalog::ShardIndex shard);

// The filter that narrows the shards: of a first $match; {} otherwise.
DocView leading_match(DocView pipeline) noexcept;
// {<name>: <argument>}'s element, of its last stage; none if that is no document.
Element last_stage(DocView pipeline) noexcept;
// Its last stage is $out or $merge, which must be last: a command that was sent may have been executed.
bool ends_in_write(DocView pipeline) noexcept;
// The name of its first stage; empty: there is none.
std::string_view first_stage_name(DocView pipeline) noexcept;
// Stages whose privileges are not known here: CommandNotSupported (115) by name, where users log in.
Result<void> refuse_unjudged(const Context& context, DocView pipeline);
// An aggregate command's first stage is $changeStream.
bool opens_change_stream(DocView body) noexcept;
// Deeper ones are refused when they are run.
inline constexpr int pipeline_nesting_max = 20;

// The parsed command; views into the request.
struct AggregateArguments {
  std::string_view collection;  // empty: {aggregate: 1}
  DocView pipeline;
  DocView let;
  FirstBatch first;
  bool explain = false;
  bool allow_disk_use = false;
  ValueView collation;
};
Result<AggregateArguments> parse_aggregate(DocView body);

// What stages ask of the shard that runs them. In a cluster.
struct MergerNeeds {
  std::optional<catalog::ShardIndex> shard;     // this one
  const catalog::Database* database = nullptr;  // … because it is the primary shard of that
  bool divided = false;  // they must be told what only a router knows, even if one shard has all documents

  bool any() const noexcept { return shard.has_value() || divided; }
};

// Where an aggregation goes: whole to the one shard in `targets`, or divided over all of them.
struct AggregatePlan {
  Targets targets;
  bool whole = false;
  MergerNeeds merger;
};
Result<AggregatePlan> plan_aggregate(const Context& context, const Request& request,
                                     const AggregateArguments& aggregate);
// Divided so that the second half runs here. CommandNotSupported (115) if that is not possible.
Result<pipeline::SplitPipeline> split_here(Context& context, const Request& request,
                                           const AggregateArguments& aggregate, const Targets& targets);

}  // namespace spillway::exec
