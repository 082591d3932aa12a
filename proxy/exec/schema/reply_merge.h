// Merging the replies of DDL and statistics commands that went to several shards. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "cursor/error.h"

namespace spillway::exec {

// One shard's answer: a body, or an error (an ok: 0 reply, or a failure to reach it).
struct ShardAnswer {
  std::string shard;    // its name
  std::string address;  // its key in `raw`
  DocView body;         // of the reply; {} when there was none
  std::optional<Error> error;
};

// Errors that mean "not here", and that are no failure as long as another shard succeeded. ShardNotFound(70) always is
// one: that shard has left the cluster.
enum class Tolerate { nothing, namespace_not_found, index_not_found, not_made_implicitly };

// NamespaceNotFound(26), or the text that servers without that code give.
bool is_namespace_missing(const Error& error) noexcept;

// The raw merge: success carries the first shard's own fields (so that the reply reads as one server's), the first
// writeConcernError, and `raw`; any error left makes the whole fail with the first one's code.
struct RawMerge {
  BsonDoc reply;
  bool ok = false;
};
// `only_raw`: without the first shard's fields, as a mongos answers.
RawMerge merge_raw(const std::vector<ShardAnswer>& answers, Tolerate tolerate, bool only_raw = false);

// The error of the whole: one that is not tolerated, or the first of all. Without one, leaves those that succeeded.
std::optional<Error> take_failure(std::vector<ShardAnswer>& answers, Tolerate tolerate);

// Of a number in each answer.
double sum_of(const std::vector<ShardAnswer>& answers, std::string_view name);

// `chunks`: 0 of a collection that is not sharded. `scale`: what sums of bytes are divided by, and each shard's bytes;
// 0: the shards have done that.
BsonDoc merge_coll_stats(const std::vector<ShardAnswer>& answers, std::string_view ns, std::size_t chunks,
                         std::int32_t scale = 0);
// `in_cluster`: collections and indexes are not the same ones on every shard.
BsonDoc merge_db_stats(const std::vector<ShardAnswer>& answers, std::string_view db, bool in_cluster);
BsonDoc merge_validate(const std::vector<ShardAnswer>& answers, std::string_view ns);
// The config servers among those that have answered. They alone count for admin, and for config beside the shards.
struct ConfigServers {
  std::string_view name;    // empty: there are none
  bool hold_data = false;   // they are a shard, too
};
// `seen`: which of them; empty: all.
BsonDoc merge_list_databases(const std::vector<ShardAnswer>& answers, bool name_only,
                             const std::function<bool(std::string_view)>& seen = {},
                             const ConfigServers& config_servers = {});

}  // namespace spillway::exec
