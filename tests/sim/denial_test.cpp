// Every reservation in a request's life is refused once, one run after the other: the client gets a
// clean answer or a closed connection, and nothing is left behind. Run under AddressSanitizer this
// also shows that no path frees twice or leaks.
#include <algorithm>
#include <functional>
#include <set>

#include "allocator/budget_denial.h"
#include "proxy/wire/compression.h"
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::size_t shards = 3;
constexpr int span = 20;
constexpr int inserted = 1'000;

// Which of the charges are refused, and whether there are reserves for when they are.
struct Denial {
  std::int64_t nth = 0;
  bool and_later = false;
  bool reserves = false;
};

class Run {
 public:
  Run(const Denial& denial, std::optional<wire::Compressor> compressor)
      : world_(options()), client_(world_.client()) {
    client_->compressor = compressor;
    store_documents(world_, span, 3'000);
    if (denial.reserves) REQUIRE_FALSE(world_.shared().divide_memory(64 * limits::mib));
    deny_charges(&world_.shared().memory.process, denial.nth, denial.and_later);
  }

  SimWorld& world() { return world_; }
  SimClient& client() { return *client_; }
  bool met_denial() const { return met_ || denied_charges() > 0; }
  void lift() {
    met_ = met_denial();
    deny_charges(nullptr, 0, false);
  }

  // nullopt: the connection was closed. What an error may be, it must be.
  std::optional<BsonDoc> call(BsonDoc command) {
    auto reply = try_call(world_, *client_, std::move(command));
    for (const std::string& violation : client_->violations()) FAIL_CHECK(violation);
    if (reply && !is_ok(*reply)) {
      INFO(to_json(*reply));
      errors.insert(code_of(*reply));
      CHECK(met_denial());
      const std::set<std::int64_t> clean{462, 146, 6};
      CHECK(clean.contains(code_of(*reply)));
      if (code_of(*reply) != 462) CHECK_FALSE(retryable(*reply));
    }
    return reply;
  }

  static bool has_label(const BsonDoc& reply, std::string_view label) {
    const ValueView labels = reply.view()["errorLabels"];
    if (!labels.is_array()) return false;
    for (const Element& each : labels.as_document()) {
      if (each.as_string() == label) return true;
    }
    return false;
  }
  static bool retryable(const BsonDoc& reply) {
    CHECK(has_label(reply, "RetryableError") == has_label(reply, "SystemOverloadedError"));
    return has_label(reply, "RetryableError");
  }

  // REQUIRES that denials are lifted.
  void finish() {
    client_->close();
    world_.run_for(minutes(3));
    require_quiet(world_);
    for (const MemoryQueue* queue : {&world_.shared().memory.request_queue, &world_.shared().memory.work_queue}) {
      const MemoryQueueUsage usage = queue->usage();
      CHECK(usage.waiting == 0);
      CHECK(usage.large.used_bytes == 0);
      CHECK(usage.small.used_bytes == 0);
    }
  }

  std::set<std::int64_t> errors;
  bool closed = false;

 private:
  bool met_ = false;
  static SimWorldOptions options() {
    SimWorldOptions options = sharded_world(shards, span);
    options.routing += ranged_collection("app.fresh", shards, inserted / static_cast<int>(shards));
    options.cursor_timeout_ms = 60'000;
    return options;
  }

  SimWorld world_;
  std::unique_ptr<SimClient> client_;
};

// Reads a find to its end. What a driver may retry is retried, once memory is there: then all of it
// comes.
void scan(Run& run, const BsonDoc& find) {
  std::vector<std::int64_t> ids;
  BsonDoc command = find;
  for (;;) {
    auto reply = run.call(command);
    if (!reply) {
      run.closed = true;
      return;
    }
    if (!is_ok(*reply)) {
      if (!Run::retryable(*reply)) return;
      run.lift();
      reply = run.call(command);
      REQUIRE(reply);
      REQUIRE(is_ok(*reply));
    }
    for (const BsonDoc& document : batch_of(*reply)) {
      ids.push_back(document.view()["_id"].as_int32());
      CHECK(document.view()["text"].as_string().size() == 3'000);
    }
    if (cursor_id(*reply) == 0) break;
    command = json(get_more(cursor_id(*reply), 7));
  }
  std::sort(ids.begin(), ids.end());
  REQUIRE(ids.size() == shards * span);
  for (std::size_t i = 0; i < ids.size(); ++i) REQUIRE(ids[i] == static_cast<std::int64_t>(i));
}

void find_unsorted(Run& run) {
  scan(run, json(R"({"find": "docs", "filter": {}, "batchSize": 7, "$db": "app"})"));
}
void find_sorted(Run& run) {
  scan(run, json(R"({"find": "docs", "filter": {}, "sort": {"k": 1}, "batchSize": 7,
                     "$db": "app"})"));
}

void find_sorted_by_text(Run& run) {
  scan(run, json(R"({"find": "docs", "filter": {}, "sort": {"text": 1, "_id": 1}, "batchSize": 7, "$db": "app"})"));
}

void group(Run& run) {
  const BsonDoc command = json(
      R"({"aggregate": "docs", "pipeline": [{"$group": {"_id": "$k", "n": {"$sum": 1}}}],
          "cursor": {}, "$db": "app"})");
  auto reply = run.call(command);
  if (reply && !is_ok(*reply) && Run::retryable(*reply)) {
    run.lift();
    reply = run.call(command);
    REQUIRE(reply);
    REQUIRE(is_ok(*reply));
  }
  run.closed = !reply;
  if (!reply || !is_ok(*reply)) return;
  std::int64_t total = 0;
  for (const BsonDoc& document : batch_of(*reply)) total += document.view()["n"].to_int64().value();
  CHECK(total == static_cast<std::int64_t>(shards) * span);
}

std::size_t stored(Run& run) {
  std::size_t all = 0;
  for (std::size_t i = 0; i < shards; ++i) all += run.world().shard(i).stored("app.fresh").size();
  return all;
}

void insert(Run& run) {
  BsonWriter out;
  out.append("insert", "fresh");
  out.begin_array("documents");
  for (int id = 0; id < inserted; ++id) {
    // Neighbours go to different shards: every child's documents are copied together.
    out.begin_document_item();
    out.append("_id", (id * 7) % inserted).append("text", std::string(100, 'y'));
    out.end();
  }
  out.end();
  out.append("ordered", false).append("$db", "app");
  const BsonDoc command = std::move(out).finish();
  auto reply = run.call(command);
  run.closed = !reply;
  if (!reply) return;
  if (is_ok(*reply)) {
    const std::int64_t n = reply->view()["n"].to_int64().value();
    if (!reply->view()["writeErrors"].exists()) {
      CHECK(n == inserted);
      CHECK(stored(run) == inserted);
    } else {
      CHECK(n <= static_cast<std::int64_t>(stored(run)));  // what was lost on the way back may be there
    }
    return;
  }
  // A driver would send it again: nothing may have been written.
  if (!Run::retryable(*reply)) return;
  CHECK(Run::has_label(*reply, "NoWritesPerformed"));
  CHECK(stored(run) == 0);
  run.lift();
  reply = run.call(command);
  REQUIRE(reply);
  CHECK(is_ok(*reply));
  CHECK(stored(run) == inserted);
}

using Scenario = void (*)(Run&);

// Denies the first, the second, … until a run meets no denial. How many there were.
std::int64_t deny_every(Scenario scenario, Denial denial,
                        std::optional<wire::Compressor> compressor = {}) {
  for (denial.nth = 1;; ++denial.nth) {
    INFO("charge " << denial.nth << (denial.and_later ? " and all later ones" : " alone")
                   << (denial.reserves ? ", with reserves" : ""));
    Run run(denial, compressor);
    scenario(run);
    const bool met = run.met_denial();
    run.lift();
    run.finish();
    // The reserves are for this: all that a client notices is that it takes longer.
    if (denial.reserves && scenario != group) {
      CHECK(run.errors.empty());
      CHECK_FALSE(run.closed);
    }
    if (!met) return denial.nth - 1;
    REQUIRE(denial.nth < 1'000);
  }
}

void deny_in_all_ways(Scenario scenario, std::int64_t least,
                      std::optional<wire::Compressor> compressor = {}) {
  for (const bool reserves : {false, true}) {
    for (const bool and_later : {false, true}) {
      CHECK(deny_every(scenario, {0, and_later, reserves}, compressor) >= least);
    }
  }
}

}  // namespace

TEST_CASE("each reservation denied: a find over three shards") { deny_in_all_ways(find_unsorted, 20); }

TEST_CASE("each reservation denied: a sorted find over three shards") {
  deny_in_all_ways(find_sorted, 20);
}

TEST_CASE("each reservation denied: a find over three shards, sorted by long keys") {
  deny_in_all_ways(find_sorted_by_text, 23);
}

TEST_CASE("each reservation denied: a group over three shards") { deny_in_all_ways(group, 6); }

TEST_CASE("each reservation denied: an insert of a thousand documents") {
  deny_in_all_ways(insert, 6);
}

TEST_CASE("each reservation denied: compressed requests") {
  for (const auto compressor : {wire::Compressor::snappy, wire::Compressor::zstd}) {
    deny_in_all_ways(find_sorted, 20, compressor);
    deny_in_all_ways(insert, 6, compressor);
  }
}

}  // namespace spillway::test
