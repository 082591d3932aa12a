#include "proxy/exec/schema/reply_merge.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "cursor/field_table.h"
#include "proxy/catalog/fingerprint.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/core/stale.h"

namespace spillway::exec {

namespace {

// The shards' internal ones, and Spillway's.
bool is_hidden_database(std::string_view name) {
  return name == "local" || name == "config" || name == catalog::fingerprint_database;
}

bool tolerated(const ShardAnswer& answer, Tolerate tolerate) {
  if (!answer.error) return false;
  if (answer.error->is(ErrorCode::shard_not_found)) return true;
  switch (tolerate) {
    case Tolerate::nothing:
      return false;
    case Tolerate::namespace_not_found:
      return is_namespace_missing(*answer.error);
    case Tolerate::index_not_found:
      return answer.error->is(ErrorCode::index_not_found) || is_namespace_missing(*answer.error);
    case Tolerate::not_made_implicitly:
      return answer.error->code == cannot_implicitly_create_collection;
  }
  return false;
}

void append_answer(BsonWriter& out, std::string_view name, const ShardAnswer& answer) {
  out.begin_document(name).append_elements(answer.body, std::not_fn(is_stripped_from_reply)).end();
}

// `all`: what is tolerated, too. A mongos shows that only if nothing else has come.
void append_raw(BsonWriter& out, const std::vector<ShardAnswer>& answers, Tolerate tolerate, bool all) {
  out.begin_document("raw");
  for (const ShardAnswer& answer : answers) {
    if (!answer.error) append_answer(out, answer.address, answer);
  }
  for (const ShardAnswer& answer : answers) {
    if (!answer.error || (!all && tolerated(answer, tolerate))) continue;
    out.append(answer.address, error_document(*answer.error));
  }
  out.end();
}

// In a cluster local never counts: each server has its own. admin counts on the config servers only, config on all
// servers, and the others on the shards only.
bool counts_in_cluster(std::string_view name, bool of_config_servers, bool of_shard) {
  if (name == "local") return false;
  if (name == "admin") return of_config_servers;
  return name == "config" || of_shard;
}

double number(ValueView value) { return value.to_double().value_or(0); }

void append_sum(BsonWriter& out, std::string_view name, double sum) {
  append_count(out, name, static_cast<std::int64_t>(sum));
}

double most_of(const std::vector<ShardAnswer>& answers, std::string_view name, double least = 0) {
  for (const ShardAnswer& answer : answers) least = std::max(least, number(answer.body[name]));
  return least;
}

double weighted_average(const std::vector<ShardAnswer>& answers, std::string_view count_name) {
  double weighted = 0, count = 0;
  for (const ShardAnswer& answer : answers) {
    const double n = number(answer.body[count_name]);
    weighted += number(answer.body["avgObjSize"]) * n;
    count += n;
  }
  return count > 0 ? weighted / count : 0;
}

bool any_has(const std::vector<ShardAnswer>& answers, std::string_view name) {
  return std::any_of(answers.begin(), answers.end(),
                     [name](const ShardAnswer& answer) { return answer.body[name].exists(); });
}

// From 4.4 on.
bool has_total_size(const std::vector<ShardAnswer>& answers) { return any_has(answers, "totalSize"); }

}  // namespace

double sum_of(const std::vector<ShardAnswer>& answers, std::string_view name) {
  double sum = 0;
  for (const ShardAnswer& answer : answers) sum += number(answer.body[name]);
  return sum;
}

bool is_namespace_missing(const Error& error) noexcept {
  return error.is(ErrorCode::namespace_not_found) || error.message == "ns not found";
}

RawMerge merge_raw(const std::vector<ShardAnswer>& answers, Tolerate tolerate, bool only_raw) {
  const ShardAnswer* success = nullptr;
  const ShardAnswer* failure = nullptr;
  const ShardAnswer* missing = nullptr;
  for (const ShardAnswer& answer : answers) {
    if (!answer.error) {
      if (success == nullptr) success = &answer;
    } else if (tolerated(answer, tolerate)) {
      if (missing == nullptr) missing = &answer;
    } else if (failure == nullptr) {
      failure = &answer;
    }
  }
  const bool none_else = failure == nullptr && success == nullptr;
  if (none_else) failure = missing;
  BsonWriter out;
  if (failure != nullptr) {
    append_raw(out, answers, tolerate, none_else);
    out.append_elements(error_document(*failure->error));
    return {std::move(out).finish(), false};
  }
  const auto shown = [](std::string_view name) {
    return name != "ok" && name != "writeConcernError" && !is_stripped_from_reply(name);
  };
  if (!only_raw) out.append_elements(success->body, shown);
  append_raw(out, answers, tolerate, false);
  for (const ShardAnswer& answer : answers) {
    const Element concern = answer.body.find("writeConcernError");
    if (!concern.exists()) continue;
    out.append_element(concern);
    break;
  }
  return {ok_document(std::move(out)), true};
}

std::optional<Error> take_failure(std::vector<ShardAnswer>& answers, Tolerate tolerate) {
  for (const ShardAnswer& answer : answers) {
    if (answer.error && !tolerated(answer, tolerate)) return answer.error;
  }
  const auto failed = [](const ShardAnswer& answer) { return answer.error.has_value(); };
  if (std::all_of(answers.begin(), answers.end(), failed) && !answers.empty()) return answers.front().error;
  std::erase_if(answers, failed);
  return std::nullopt;
}

namespace {

// {bucketsNs, sums of the others}. The average is that of all buckets.
void append_time_series(BsonWriter& out, const std::vector<ShardAnswer>& answers) {
  std::map<std::string, double, std::less<>> sums;
  std::string ns;
  double bytes = 0;
  for (const ShardAnswer& answer : answers) {
    const DocView fields = answer.body["timeseries"].to_document();
    for (const Element& each : fields) {
      if (each.is_string()) {
        ns = each.as_string();
      } else if (each.name == "avgBucketSize") {
        bytes += number(each) * number(fields["bucketCount"]);
      } else {
        sums[std::string(each.name)] += number(each);
      }
    }
  }
  if (ns.empty()) return;
  out.begin_document("timeseries").append("bucketsNs", ns);
  for (const auto& [name, sum] : sums) append_sum(out, name, sum);
  if (sums["bucketCount"] > 0) append_sum(out, "avgBucketSize", std::floor(bytes / sums["bucketCount"]));
  out.end();
}

// What a shard has answered without a scale.
void append_scaled(BsonWriter& out, DocView answer, std::int32_t scale) {
  constexpr FieldTable<5> sizes({"size", "maxSize", "storageSize", "totalIndexSize", "totalSize"});
  for (const Element& field : answer) {
    if (sizes.contains(field.name)) {
      append_sum(out, field.name, number(field) / scale);
    } else if (field.name == "scaleFactor") {
      out.append("scaleFactor", scale);
    } else if (field.name == "indexSizes" && field.is_document()) {
      out.begin_document("indexSizes");
      for (const Element& index : field.as_document()) append_sum(out, index.name, number(index) / scale);
      out.end();
    } else {
      out.append_element(field);
    }
  }
}

}  // namespace

BsonDoc merge_coll_stats(const std::vector<ShardAnswer>& answers, std::string_view ns, std::size_t chunks,
                         std::int32_t scale) {
  const double divisor = scale > 0 ? scale : 1;
  const DocView first = answers.front().body;
  BsonWriter out;
  out.append("sharded", chunks > 0);
  if (chunks == 0) out.append("primary", answers.front().shard);
  for (const char* const name : {"capped", "max", "userFlags", "wiredTiger", "indexDetails"}) {
    if (const Element field = first.find(name); field.exists()) out.append_element(field);
  }
  out.append("ns", ns);
  const bool counts = any_has(answers, "count");
  for (const std::string_view name : {"count", "size", "storageSize", "totalIndexSize"}) {
    if (counts || name != "count") append_sum(out, name, sum_of(answers, name) / (name == "count" ? 1 : divisor));
  }
  if (has_total_size(answers)) append_sum(out, "totalSize", sum_of(answers, "totalSize") / divisor);
  std::map<std::string, double, std::less<>> index_sizes;
  for (const ShardAnswer& answer : answers) {
    for (const Element& size : answer.body["indexSizes"].to_document()) {
      index_sizes[std::string(size.name)] += number(size);
    }
  }
  out.begin_document("indexSizes");
  for (const auto& [name, size] : index_sizes) append_sum(out, name, size / divisor);
  out.end();
  if (counts) out.append("avgObjSize", weighted_average(answers, "count"));
  append_time_series(out, answers);
  out.append("maxSize", static_cast<std::int64_t>(most_of(answers, "maxSize") / divisor));
  if (scale > 0) {
    out.append("scaleFactor", scale);
  } else if (const Element factor = first.find("scaleFactor"); factor.exists()) {
    out.append_element(factor);
  }
  append_sum(out, "nindexes", most_of(answers, "nindexes"));
  append_sum(out, "nchunks", static_cast<double>(std::max<std::size_t>(1, chunks)));
  out.begin_document("shards");
  for (const ShardAnswer& answer : answers) {
    if (scale > 0) {
      append_scaled(out.begin_document(answer.shard), answer.body, scale);
      out.end();
    } else {
      append_answer(out, answer.shard, answer);
    }
  }
  out.end();
  return ok_document(std::move(out));
}

BsonDoc merge_db_stats(const std::vector<ShardAnswer>& answers, std::string_view db, bool in_cluster) {
  const auto of_all = [&](std::string_view name) {
    return in_cluster ? sum_of(answers, name) : most_of(answers, name);
  };
  BsonWriter out;
  out.begin_document("raw");
  for (const ShardAnswer& answer : answers) append_answer(out, answer.address, answer);
  out.end();
  out.append("db", db);
  append_sum(out, "collections", of_all("collections"));
  append_sum(out, "views", sum_of(answers, "views"));
  append_sum(out, "objects", sum_of(answers, "objects"));
  out.append("avgObjSize", weighted_average(answers, "objects"));
  for (const std::string_view name : {"dataSize", "storageSize"}) out.append(name, sum_of(answers, name));
  if (has_total_size(answers)) out.append("totalSize", sum_of(answers, "totalSize"));
  // Of 4.2 and earlier.
  if (any_has(answers, "numExtents")) append_sum(out, "numExtents", sum_of(answers, "numExtents"));
  append_sum(out, "indexes", of_all("indexes"));
  out.append("indexSize", sum_of(answers, "indexSize"));
  // For {freeStorage: 1}.
  for (const std::string_view name : {"freeStorageSize", "indexFreeStorageSize", "totalFreeStorageSize"}) {
    if (any_has(answers, name)) out.append(name, sum_of(answers, name));
  }
  append_sum(out, "scaleFactor", most_of(answers, "scaleFactor", 1));
  out.append("fileSize", std::int32_t{0});
  return ok_document(std::move(out));
}

BsonDoc merge_validate(const std::vector<ShardAnswer>& answers, std::string_view ns) {
  bool valid = true;
  for (const ShardAnswer& answer : answers) valid = valid && answer.body["valid"].truthy();
  BsonWriter out;
  out.append("ns", ns);
  append_sum(out, "nrecords", sum_of(answers, "nrecords"));
  append_sum(out, "nIndexes", most_of(answers, "nIndexes"));
  out.append("valid", valid);
  for (const std::string_view list : {"warnings", "errors"}) {
    out.begin_array(list);
    for (const ShardAnswer& answer : answers) {
      for (const Element& item : answer.body[list].to_array()) out.append_item(ValueView(item));
    }
    out.end();
  }
  out.begin_document("raw");
  for (const ShardAnswer& answer : answers) append_answer(out, answer.shard, answer);
  out.end();
  return ok_document(std::move(out));
}

BsonDoc merge_list_databases(const std::vector<ShardAnswer>& answers, bool name_only,
                             const std::function<bool(std::string_view)>& seen,
                             const ConfigServers& config_servers) {
  struct Row {
    double size = 0;
    BsonWriter shards;
  };
  std::map<std::string, Row> rows;
  for (const ShardAnswer& answer : answers) {
    const bool of_config_servers = answer.shard == config_servers.name;
    const bool of_shard = !of_config_servers || config_servers.hold_data;
    for (const Element& database : answer.body["databases"].to_array()) {
      const ValueView name = database.to_document()["name"];
      if (!name.is_string()) continue;
      const bool counts = config_servers.name.empty()
                              ? !is_hidden_database(name.as_string())
                              : counts_in_cluster(name.as_string(), of_config_servers, of_shard);
      if (!counts) continue;
      if (seen && !seen(name.as_string())) continue;
      Row& row = rows[std::string(name.as_string())];
      const double size = number(database.as_document()["sizeOnDisk"]);
      // A shard's 1 means "empty": it adds nothing to a larger sum.
      row.size = (row.size == 1 && size > 1) ? size : (size == 1 && row.size >= 1) ? row.size : row.size + size;
      append_sum(row.shards, answer.shard, size);
    }
  }
  BsonWriter out;
  out.begin_array("databases");
  double total = 0;
  for (auto& [name, row] : rows) {
    out.begin_document_item();
    out.append("name", name);
    if (!name_only) {
      out.append("sizeOnDisk", static_cast<std::int64_t>(row.size));
      out.append("empty", row.size == 1);
      out.append("shards", std::move(row.shards).finish());
      total += row.size;
    }
    out.end();
  }
  out.end();
  if (!name_only) {
    out.append("totalSize", static_cast<std::int64_t>(total));
    out.append("totalSizeMb", static_cast<std::int64_t>(total / (1024 * 1024)));
  }
  return ok_document(std::move(out));
}

}  // namespace spillway::exec
