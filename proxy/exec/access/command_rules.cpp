#include "proxy/exec/access/command_rules.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "cursor/field_table.h"
#include "proxy/catalog/routing.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/file_chunks.h"

namespace spillway::exec {

namespace {

using enum auth::Action;
using auth::ActionSet;

constexpr int nesting_max = 20;

// --- writes

// Calls `look` with each operation of a write command, in its body or in a document sequence.
template <class Look>
bool every_operation(const Subject& subject, std::string_view field, Look look) {
  for (const Element& element : subject.body) {
    if (element.name != field) continue;
    if (!element.is_array()) return false;
    for (const Element& operation : element.as_document()) {
      if (!operation.is_document() || !look(operation.as_document())) return false;
    }
  }
  if (subject.message == nullptr) return true;
  for (const wire::DocSequence& sequence : subject.message->sequences) {
    if (sequence.name != field) continue;
    for (const DocView operation : sequence) {
      if (!look(operation)) return false;
    }
  }
  return true;
}

// Does the field occur at least once with a true value?
bool says(DocView document, std::string_view field) {
  for (const Element& element : document) {
    if (element.name == field && element.truthy()) return true;
  }
  return false;
}

ActionSet bypass(const Subject& subject) {
  return says(subject.body, "bypassDocumentValidation") ? ActionSet(bypass_document_validation)
                                                        : ActionSet();
}

}  // namespace

bool may_insert(const Subject& subject) {
  return subject.may_on_collection(bypass(subject) | insert);
}

bool may_update(const Subject& subject) {
  const ActionSet actions = bypass(subject) | update;
  if (subject.may_on_collection(actions | insert)) return true;
  return subject.may_on_collection(actions) &&
         every_operation(subject, "updates",
                         [](DocView operation) { return !says(operation, "upsert"); });
}

// The actions are gathered by collection: there may be 100,000 operations.
bool may_bulk_write(const Subject& subject) {
  struct Need {
    std::string_view ns;
    ActionSet actions;
  };
  absl::InlinedVector<Need, 8> needs;
  int lists = 0;  // of each, a server may take any
  for (const Element& field : subject.body) lists += field.name == "ops" || field.name == "nsInfo" ? 1 : 0;
  if (subject.message != nullptr) lists += static_cast<int>(subject.message->sequences.size());
  const bool named = every_operation(subject, "nsInfo", [&](DocView entry) {
    int names = 0;
    for (const Element& field : entry) {
      if (field.name != "ns") continue;
      if (!field.is_string() || names++ > 0) return false;
      needs.push_back({field.as_string(), {}});
    }
    return names == 1;
  });
  const bool gathered = named && lists == 2 && every_operation(subject, "ops", [&](DocView operation) {
    const Element first = operation.first();
    const auto index = first.to_int64();
    if (!index || *index < 0 || *index >= static_cast<std::int64_t>(needs.size())) return false;
    ActionSet& actions = needs[static_cast<std::size_t>(*index)].actions;
    if (first.name == "insert") {
      actions |= insert;
    } else if (first.name == "delete") {
      actions |= remove;
    } else {
      actions |= says(operation, "upsert") ? ActionSet{update, insert} : ActionSet(update);
    }
    return true;
  });
  const ActionSet always = bypass(subject);
  return gathered && std::all_of(needs.begin(), needs.end(), [&](const Need& need) {
    return subject.may_on_namespace(need.ns, always | need.actions);
  });
}

bool may_find_and_modify(const Subject& subject) {
  ActionSet actions = bypass(subject) | find;
  if (says(subject.body, "remove")) {
    actions |= remove;
  } else {
    actions |= update;
    if (says(subject.body, "upsert")) actions |= insert;
  }
  return subject.may_on_collection(actions);
}

namespace {

// --- aggregations

// The collection that a pipeline reads: for a pipeline in $lookup or $unionWith, the stage's.
struct Source {
  std::string_view db;
  std::string_view collection;
};

bool may_run(const Subject& subject, const Source& source, DocView pipeline, int depth);

bool may_on(const Subject& subject, const Source& source, ActionSet actions) {
  return subject.privileges.allows(actions, source.db, source.collection);
}

// A target written as "collection" or {db, coll}; none where `coll` occurs twice or is missing.
std::optional<Source> target_of(const Subject& subject, ValueView target) {
  if (target.is_string()) return Source{subject.db, target.as_string()};
  if (!target.is_document()) return std::nullopt;
  Source named{subject.db, {}};
  for (const Element& field : target.as_document()) {
    if (field.name != "db" && field.name != "coll") continue;
    if (!field.is_string()) return std::nullopt;
    if (field.name == "coll" && !named.collection.empty()) return std::nullopt;
    (field.name == "db" ? named.db : named.collection) = field.as_string();
  }
  if (named.collection.empty()) return std::nullopt;
  return named;
}

bool may_on_target(const Subject& subject, ValueView target, ActionSet actions) {
  const std::optional<Source> named = target_of(subject, target);
  return named && may_on(subject, *named, actions);
}

// The stages that name other collections: each field that names one, and the pipelines on the last of them. Without
// one, a pipeline must begin with its documents.
bool may_join(const Subject& subject, DocView specification, std::string_view from, int depth) {
  Source joined{subject.db, {}};
  for (const Element& field : specification) {
    if (field.name == "db") return false;  // another database only inside {db, coll}
    if (field.name != from) continue;
    const std::optional<Source> named = target_of(subject, field);
    if (!named || !may_on(subject, *named, find)) return false;
    joined = *named;
  }
  for (const Element& field : specification) {
    if (field.name != "pipeline") continue;
    if (!field.is_array() || !may_run(subject, joined, field.as_document(), depth + 1)) return false;
  }
  return true;
}

bool may_facet(const Subject& subject, const Source& source, DocView facets, int depth) {
  for (const Element& facet : facets) {
    if (!facet.is_array() || !may_run(subject, source, facet.as_document(), depth + 1)) return false;
  }
  return true;
}

// $merge is written as "collection", or with `into` and further fields.
bool may_merge(const Subject& subject, const Source& source, const Element& stage, int depth) {
  // Servers take the last of two fields with one name.
  const auto is_always = [&stage](std::string_view name, std::initializer_list<std::string_view> modes) {
    bool found = false;
    for (const Element& field : stage.to_document()) {
      if (field.name != name) continue;
      if (!field.is_string() || std::find(modes.begin(), modes.end(), field.as_string()) == modes.end()) return false;
      found = true;
    }
    return found;
  };
  const bool inserts_only = is_always("whenMatched", {"fail"});
  const bool updates_only = !inserts_only && is_always("whenNotMatched", {"fail", "discard"});
  const ActionSet actions = bypass(subject) | (inserts_only   ? ActionSet(insert)
                                               : updates_only ? ActionSet(update)
                                                              : ActionSet{insert, update});
  if (!stage.is_document()) return may_on_target(subject, stage, actions);
  bool targeted = false;
  for (const Element& field : stage.as_document()) {
    if (field.name == "into") {
      targeted = true;
      if (!may_on_target(subject, field, actions)) return false;
    } else if (field.name == "whenMatched" && field.is_array()) {
      if (!may_run(subject, source, field.as_document(), depth + 1)) return false;
    }
  }
  return targeted;
}

// Stages that read only their input.
constexpr FieldTable<28> harmless_stages(
    {"$match", "$project", "$addFields", "$set", "$unset", "$unwind", "$sort", "$limit", "$skip", "$group", "$count",
     "$sortByCount", "$replaceRoot", "$replaceWith", "$redact", "$sample", "$bucket", "$bucketAuto", "$geoNear",
     "$densify", "$fill", "$setWindowFields", "$documents", "$search", "$searchMeta", "$vectorSearch",
     "$changeStreamSplitLargeEvent", "$_internalUnpackBucket"});

constexpr FieldTable<4> unjudged_stages({"$listClusterCatalog", "$listSearchIndexes", "$rankFusion", "$scoreFusion"});

// Without a collection, or under a name that none has, it shows all of a server's.
bool may_list_catalog(const Subject& subject, const Source& source) {
  const bool of_collection = !source.collection.empty() && !source.collection.starts_with('$');
  return of_collection && may_on(subject, source, {list_collections, list_indexes});
}

// The actions of a stage beside `find` on the collection, by its name. An unknown stage might read or write anything:
// no user may use it.
bool may_stage(const Subject& subject, const Source& source, const Element& stage, int depth) {
  const std::string_view name = stage.name;
  if (name == "$lookup" || name == "$graphLookup") {
    return stage.is_document() && may_join(subject, stage.as_document(), "from", depth);
  }
  if (name == "$unionWith") {
    if (stage.is_string()) return may_on_target(subject, stage, find);
    return stage.is_document() && may_join(subject, stage.as_document(), "coll", depth);
  }
  if (name == "$facet")
    return stage.is_document() && may_facet(subject, source, stage.as_document(), depth);
  if (name == "$out") return may_on_target(subject, stage, bypass(subject) | ActionSet{insert, remove});
  if (name == "$merge") return may_merge(subject, source, stage, depth);
  if (name == "$collStats") return may_on(subject, source, coll_stats);
  if (name == "$indexStats") return may_on(subject, source, index_stats);
  if (name == "$planCacheStats") return may_on(subject, source, plan_cache_read);
  if (name == "$listCatalog") return may_list_catalog(subject, source);
  if (name == "$listSessions") return subject.may_on_cluster(list_sessions);
  // A user's own are shown where they stand first, and were checked there: inside of others a shard knows no user.
  const bool on_its_own = depth == 0 && source.collection.empty();
  if (name == "$shardedDataDistribution") return on_its_own && subject.may_on_cluster(sharded_data_distribution);
  if (name == "$currentOp") return on_its_own || subject.may_on_cluster(inprog);
  if (name == "$listLocalSessions") return on_its_own || subject.may_on_cluster(list_sessions);
  if (name == "$changeStream") {
    const bool of_collection = subject.body.first().is_string();
    return of_collection ? subject.may_on_collection({find, change_stream}) : subject.may({find, change_stream}, {});
  }
  return harmless_stages.contains(name);
}

bool may_run(const Subject& subject, const Source& source, DocView pipeline, int depth) {
  if (depth > nesting_max) return false;
  for (const Element& stage : pipeline) {
    for (const Element& named : stage.to_document()) {  // another type is no stage: refused when it is run
      if (!may_stage(subject, source, named, depth)) return false;
    }
  }
  return true;
}

// First stages that read no collection, but its metadata.
ActionSet first_stage_actions(DocView pipeline) {
  const std::string_view name = pipeline.first().to_document().first().name;
  if (name == "$collStats") return coll_stats;
  if (name == "$indexStats") return index_stats;
  if (name == "$listSessions") return {};
  if (name == "$listCatalog") return {list_collections, list_indexes};
  return name == "$planCacheStats" ? plan_cache_read : find;
}

// {aggregate: 1}: stages that generate documents.
bool may_generate(const Subject& subject, DocView pipeline) {
  const Element stage = pipeline.first().to_document().first();  // without one it is refused when it is run
  if (stage.name == "$currentOp" && stage.is_document()) {
    return subject.may_on_cluster(inprog) || !says(stage.as_document(), "allUsers");
  }
  if (stage.name == "$listLocalSessions" && stage.is_document()) {  // {}: the user's own
    return subject.may_on_cluster(list_sessions) || stage.as_document().empty();
  }
  if (stage.name == "$changeStream") {
    const bool of_all = stage.is_document() && says(stage.as_document(), "allChangesForCluster");
    return of_all ? subject.privileges.allows({find, change_stream}, {}, {})
                  : subject.may({find, change_stream}, {});
  }
  return true;
}

}  // namespace

bool is_unjudged_stage(std::string_view name) noexcept { return unjudged_stages.contains(name); }

bool may_aggregate(const Subject& subject) {
  const Element target = subject.body.first();
  const Element stage = subject.body["pipeline"].to_array().first().to_document().first();
  if (is_unjudged_stage(stage.name)) return true;  // refused by name
  for (const Element& field : subject.body) {
    if (field.name != "pipeline") continue;
    if (!field.is_array()) continue;  // refused when it is run
    const DocView pipeline = field.as_document();
    if (!target.is_string()) {
      if (!may_generate(subject, pipeline)) return false;
    } else if (!subject.may_on_collection(first_stage_actions(pipeline))) {
      return false;
    }
    const Source source{subject.db, target.to_text()};
    if (!may_run(subject, source, pipeline, 0)) return false;
  }
  return true;
}

bool may_sum_file(const Subject& subject) {
  const std::string chunks = chunks_of_file(subject.body);
  return !chunks.empty() && subject.may(find, chunks);
}

// It writes where `out` says, which may name one collection.
bool may_map_reduce(const Subject& subject) {
  if (!subject.may_on_collection(find)) return false;
  bool seen = false;
  for (const Element& out : subject.body) {
    if (out.name != "out") continue;
    if (std::exchange(seen, true)) return false;
    if (out.is_string() && !subject.may(bypass(subject) | insert | remove, out.as_string())) return false;
    if (!out.is_document()) continue;  // refused when it is run
    std::string_view db = subject.db, target;
    bool other_db = false;
    ActionSet actions = bypass(subject) | insert;
    for (const Element& field : out.as_document()) {
      const bool replaces = field.name == "replace" || field.name == "normal";
      if (field.name == "db") {
        if (!field.is_string() || std::exchange(other_db, true)) return false;
        if (!field.as_string().empty()) db = field.as_string();
      } else if (replaces || field.name == "merge" || field.name == "reduce") {
        if (!field.is_string() || !target.empty()) return false;
        target = field.as_string();
        actions |= replaces ? remove : update;
      }
    }
    if (!target.empty() && !subject.privileges.allows(actions, db, target)) return false;
  }
  return true;
}

namespace {

// A view shows its source: a user who may read the view must be allowed to read that, too.
bool may_view(const Subject& subject) {
  if (!subject.may_on_collection(find)) return true;
  Source source{subject.db, {}};
  for (const Element& field : subject.body) {
    if (field.name != "viewOn") continue;
    if (!field.is_string() || !subject.may(find, field.as_string())) return false;
    source.collection = field.as_string();
  }
  for (const Element& field : subject.body) {
    if (field.name != "pipeline") continue;
    if (!field.is_array() || !may_run(subject, source, field.as_document(), 0)) return false;
  }
  return true;
}

}  // namespace

bool may_create(const Subject& subject) {
  const ActionSet capped = says(subject.body, "capped") ? ActionSet(convert_to_capped) : ActionSet();
  const bool by_insert = !subject.body["viewOn"].exists() && subject.may_on_collection(capped | insert);
  return (by_insert || subject.may_on_collection(capped | create_collection)) && may_view(subject);
}
// One of them alone would show more of the source, or of another one, through what the other keeps.
bool may_coll_mod(const Subject& subject) {
  const bool both_or_none = subject.body["viewOn"].exists() == subject.body["pipeline"].exists();
  return subject.may_on_collection(coll_mod) && both_or_none && may_view(subject);
}

// --- others

bool may_explain(const Subject& subject) {
  const Element first = subject.body.first();
  if (!first.is_document()) return true;  // refused when it is run
  const DocView inner = first.as_document();
  for (const Element& field : inner) {
    if (field.name == "$db" && (!field.is_string() || field.as_string() != subject.db))
      return false;
  }
  const Element command = inner.first();
  if (command.name == "explain") return false;
  const CommandSpec* const spec = command_named(command.name);
  if (spec == nullptr || spec->need.of == CommandNeed::Of::no_login || spec->need.of == CommandNeed::Of::any_user)
    return true;  // refused when it is run
  return meets(spec->need, {subject.privileges, command.name, subject.db, inner, nullptr});
}

// The registry checks the cursor's user; this checks the collection. Listings have no collection.
bool may_get_more(const Subject& subject) {
  bool may = true;
  for (const Element& field : subject.body) {
    if (field.name != "collection" || !field.is_string()) continue;
    const std::string_view name = field.as_string();
    may = may && (name.starts_with("$cmd.") || !subject.privileges.on(subject.db, name).empty());
  }
  return may;
}

bool may_rename(const Subject& subject) {
  const Element from = subject.body.first();
  const ValueView to = subject.body["to"];
  if (!from.is_string() || !to.is_string()) return false;
  const std::string_view source = from.as_string();
  const std::string_view target = to.as_string();
  const catalog::Namespace from_ns = catalog::split_namespace(source), to_ns = catalog::split_namespace(target);
  // Time series are renamed by what restores them only.
  const bool of_buckets = from_ns.collection.starts_with("system.buckets.");
  if (of_buckets && !subject.may_on_cluster(set_user_write_block_mode)) return false;
  const ActionSet drop = says(subject.body, "dropTarget") ? ActionSet(drop_collection) : ActionSet();
  const bool simple = from_ns.db == to_ns.db && !from_ns.collection.starts_with("system.") &&
                      !to_ns.collection.starts_with("system.");
  // No collection gets a name under which the user can read it, if it could not be read before.
  const bool renames = simple && subject.privileges.allows(rename_collection_same_db, from_ns.db, {}) &&
                       (drop.empty() || subject.may_on_namespace(target, drop)) &&
                       (subject.may_on_namespace(source, find) || !subject.may_on_namespace(target, find));
  if (renames) return true;
  return subject.may_on_namespace(source, {find, drop_collection}) &&
         subject.may_on_namespace(target,
                          drop | ActionSet{insert, create_index, create_collection});
}

// Without the action a user sees the names of the collections that any privilege is for.
bool may_list_collections(const Subject& subject) {
  if (subject.may(list_collections, {})) return true;
  return says(subject.body, "nameOnly") && says(subject.body, "authorizedCollections") &&
         subject.privileges.touches(subject.db);
}

bool may_current_op(const Subject& subject) {
  return subject.may_on_cluster(inprog) || says(subject.body, "$ownOps");
}

}  // namespace spillway::exec
