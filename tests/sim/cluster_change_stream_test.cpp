// Change streams over all shards of a scripted cluster: every event once, in the order of tokens, whatever the shards
// do, and from any token on any worker.
#include <algorithm>
#include <map>
#include <random>

#include "cursor/resume_token.h"
#include "tests/sim/sim_support.h"
#include "tests/support/run_query.h"

namespace spillway::test {

namespace {

std::string digits_at(std::uint64_t time) { return fmt::format("82{:016X}", time); }
std::string hex_of(std::string_view text) {
  std::string hex;
  for (const char c : text) hex += fmt::format("{:02X}", c);
  return hex;
}
BsonDoc token_of(const std::string& digits) { return json(fmt::format(R"({{"_data": "{}"}})", digits)); }

// Of $changeStream.
DocView options_of(DocView aggregate) {
  return aggregate["pipeline"].as_document().first().as_document().first().as_document();
}

// A shard's oplog and the change streams on it, as 4.2 has them for a router: beside what SimShard does otherwise.
class Changes final : public SimRole {
 public:
  Changes(ShardRole& role, SimConfig& config) : role_(role), config_(config), oplog_time_(config.time()) {}

  // An event of rec.<collection> now, or `at` that time; its token's digits.
  std::string add(std::string_view operation, int id, std::string_view collection = "c", std::string_view db = "rec",
                  std::uint64_t at = 0) {
    oplog_time_ = at != 0 ? at : config_.tick();
    role_.hear(oplog_time_);
    Entry entry{std::string(operation), std::string(collection), std::string(db), oplog_time_, id, {}};
    const auto sharded = config_.collection(fmt::format("{}.{}", db, collection));
    for (std::size_t i = 0; i < 16; ++i) entry.uuid += fmt::format("{:02X}", sharded ? sharded->uuid[i] : 0xaa);
    oplog_.push_back(std::move(entry));
    show(oplog_.back());
    return std::string(token_digits(events_.back().view()["_id"]));
  }
  // Of another release: tokens of all events are of this version from now on.
  void install(int token_version) {
    token_version_ = token_version;
    events_.clear();
    for (const Entry& entry : oplog_) show(entry);
  }
  // What a shard writes every ten seconds.
  void add_noop() { role_.hear(oplog_time_ = config_.tick()); }
  void write_no_noops() { noop_every_ = Duration::max(); }

  std::size_t asked = 0;    // getMores
  std::size_t waiting = 0;  // of these, under way
  std::size_t open() const { return cursors_.size(); }
  std::vector<BsonDoc> opened;  // the aggregates
  Duration looks_every = milliseconds(1);  // for events, while a getMore waits
  bool damages = false;                    // getMores' batches end in a number
  bool looks_for_token = false;            // as 7.0 and later
  bool ends_streams = true;                // … after an invalidation
  std::vector<BsonDoc> staged;  // the aggregates of one event each
  std::vector<BsonDoc> finds;

  Task<std::optional<BsonDoc>> admit(Loop& loop, SimRequest& request) override {
    auto admitting = role_.admit(loop, request);
    auto refused = co_await admitting;
    if (refused) co_return refused;
    if (request.name == "aggregate" && opens_stream(request.body)) co_return open_stream(request.body);
    if (request.name == "aggregate" && !request.body.first().is_string()) co_return run_stages(request.body);
    if (request.name == "find") finds.emplace_back(request.body);
    if (request.name == "find" && request.body.first().type == BsonType::binary) co_return find_by_uuid(request.body);
    if (request.name == "killCursors") co_return kill(request.body);
    if (request.name != "getMore" || !cursors_.contains(request.body.first().as_int64())) co_return std::nullopt;
    const std::int64_t id = request.body.first().as_int64();
    ++asked;
    ++waiting;
    const TimePoint until = Clock::now() + milliseconds(request.body["maxTimeMS"].to_int64().value_or(1000));
    for (;;) {
      look_at_noops();
      if (!cursors_.contains(id)) {
        --waiting;
        co_return json(R"({"ok": 0, "code": 237, "codeName": "CursorKilled", "errmsg": "killed"})");
      }
      auto batch = next_batch(id, request.body["batchSize"].to_int64().value_or(1000), Clock::now() >= until);
      if (batch) {
        --waiting;
        co_return batch;
      }
      co_await loop.sleep_for(looks_every);
    }
  }
  std::optional<SimRefusal> refuse_statement(SimRequest& request, std::size_t index) override {
    return role_.refuse_statement(request, index);
  }
  const std::vector<BsonDoc>* documents(const SimRequest& request) override { return role_.documents(request); }
  bool sees(const SimRequest& request, DocView document) override { return role_.sees(request, document); }
  void wrote(const SimRequest& request) override { role_.wrote(request); }
  BsonDoc finish(const SimRequest& request, BsonDoc reply) override { return role_.finish(request, std::move(reply)); }
  void add_to_hello(BsonWriter& hello) override { role_.add_to_hello(hello); }

  // Of an unsharded collection, which is not there any more.
  BsonDoc find_by_uuid(DocView command) {
    const ValueView uuid = command.first();
    const auto is_own = [](std::uint8_t byte) { return byte == 0xaa; };
    ++found_by_uuid;
    if (!knows_uuids) return json(R"({"ok": 0, "code": 13, "codeName": "Unauthorized", "errmsg": "not authorized"})");
    CHECK(std::all_of(uuid.bytes.end() - 16, uuid.bytes.end(), is_own));
    return json(R"({"ok": 0, "code": 26, "codeName": "NamespaceNotFound", "errmsg": "no collection has this uuid"})");
  }
  std::size_t found_by_uuid = 0;
  bool knows_uuids = true;

  // Stages that this router does not evaluate: one that is not known fails, any other leaves out the event 7 and adds a
  // field.
  BsonDoc run_stages(DocView command) {
    staged.emplace_back(command);
    const DocView pipeline = command["pipeline"].as_document();
    if (to_json(pipeline).find("$nosuch") != std::string::npos) {
      return json(R"({"ok": 0, "code": 168, "codeName": "InvalidPipelineOperator", "errmsg": "Unrecognized"})");
    }
    BsonWriter out;
    out.begin_document("cursor").begin_array("firstBatch");
    const ValueView event = pipeline.find_path("2.$replaceRoot.newRoot.$literal");
    if (event.is_document() && event.as_document().find_path("documentKey._id").to_int64() != 7) {
      out.begin_document_item().append_elements(event.as_document()).append("z", 1).end();
    }
    out.end().append("id", std::int64_t{0}).append("ns", "admin.$cmd.aggregate").end().append("ok", 1.0);
    return std::move(out).finish();
  }

 private:
  struct Stream {
    std::string after;  // digits: the last event that was sent, or the time to begin at
    std::string wanted;  // the event that comes first, and is kept back
    std::string db, collection;  // empty: any
    BsonDoc filter;              // an array of stages
    bool ended = false;
  };

  struct Entry {
    std::string operation, collection, db;
    std::uint64_t time;
    int id;
    std::string uuid;
  };

  const char* mark_end() const { return token_version_ == 1 ? "2B0229296E04" : "2B0429296E1404"; }

  static bool is_of_document(const Entry& entry) {
    return entry.operation == "insert" || entry.operation == "update" || entry.operation == "delete";
  }

  // Source: mongod's resume_token.cpp.
  std::string token_digits_of(const Entry& entry, bool invalidates) const {
    const bool of_document = is_of_document(entry);
    const std::string key = of_document ? fmt::format("461E5F6964002B{:02X}00", entry.id) : "";
    std::string digits = digits_at(entry.time) + (token_version_ == 1 ? "2B02" : "2B04") + "2C010029";
    const bool of_collection = entry.operation != "dropDatabase";
    digits += invalidates ? "6F" : "6E";
    if (of_collection) digits += "5A1004" + entry.uuid;
    if (token_version_ == 1) return digits + key + "04";
    if (!of_collection) digits += "14";
    digits += "463C" + hex_of("operationType") + "003C" + hex_of(entry.operation) + "00";
    if (of_document) digits += "46" + hex_of("documentKey") + "00" + key;
    return digits + "0004";
  }

  void show(const Entry& entry) {
    const bool of_document = is_of_document(entry);
    BsonWriter out;
    out.append("_id", token_of(token_digits_of(entry, false))).append("operationType", entry.operation);
    out.append_timestamp("clusterTime", entry.time);
    out.begin_document("ns").append("db", entry.db).append("coll", entry.collection).end();
    if (of_document) out.begin_document("documentKey").append("_id", entry.id).end();
    if (entry.operation == "insert") out.begin_document("fullDocument").append("_id", entry.id).end();
    events_.push_back(std::move(out).finish());
    if (entry.operation != "drop" && entry.operation != "dropDatabase") return;
    BsonWriter invalid;
    invalid.append("_id", token_of(token_digits_of(entry, true))).append("operationType", "invalidate");
    invalid.append_timestamp("clusterTime", entry.time);
    invalid.begin_document("ns").append("db", entry.db).append("coll", entry.collection).end();
    events_.push_back(std::move(invalid).finish());
  }

  static bool opens_stream(DocView body) {
    const Element first = body["pipeline"].as_document().first();
    return first.is_document() && first.as_document().first().name == "$changeStream";
  }

  BsonDoc open_stream(DocView body) {
    opened.emplace_back(body);
    Stream stream;
    const DocView options = options_of(body);
    const ValueView start = options["startAfter"].exists() ? options["startAfter"] : options["resumeAfter"];
    if (start.exists()) {
      const auto token = ResumeToken::parse(token_digits(start));
      REQUIRE(token);
      stream.after = digits_at(token->cluster_time);
      if (looks_for_token && !token->high_water_mark) stream.wanted = token_digits(start);
    } else {
      REQUIRE(options["startAtOperationTime"].exists());
      stream.after = digits_at(timestamp_of(options["startAtOperationTime"]));
    }
    if (!options["allChangesForCluster"].truthy()) stream.db = body["$db"].as_string();
    if (body.first().is_string()) stream.collection = body.first().as_string();
    BsonWriter stages;
    std::size_t index = 0;
    for (const Element& stage : body["pipeline"].as_document()) {
      if (index++ > 0) stages.append(std::to_string(index - 2), ValueView(stage));
    }
    stream.filter = std::move(stages).finish();
    const std::string promised = stream.after + mark_end();
    cursors_[++last_id_] = std::move(stream);
    return reply("firstBatch", last_id_, {}, promised);
  }

  BsonDoc reply(std::string_view name, std::int64_t id, const std::vector<BsonDoc>& events,
                const std::string& promised) {
    BsonWriter out;
    out.begin_document("cursor").begin_array(name);
    for (const BsonDoc& each : events) {
      BsonWriter with_key;
      with_key.append_elements(each).append("$sortKey", each.view()["_id"]);
      out.append_item(std::move(with_key).finish());
    }
    if (damages && name == "nextBatch") out.append_item(5);
    out.end().append("postBatchResumeToken", token_of(promised)).append("id", id).append("ns", "rec.c").end();
    out.append("ok", 1.0);
    return std::move(out).finish();
  }

  std::optional<BsonDoc> next_batch(std::int64_t id, std::int64_t size, bool must) {
    Stream& stream = cursors_[id];
    std::vector<BsonDoc> batch;
    std::string promised = digits_at(oplog_time_) + mark_end();
    for (const BsonDoc& event : events_) {
      const std::string digits(token_digits(event.view()["_id"]));
      if (digits <= stream.after) continue;
      if (!stream.wanted.empty()) {
        if (digits > stream.wanted) return json(R"({"ok": 0, "code": 280, "codeName": "ChangeStreamFatalError"})");
        if (digits == stream.wanted) stream.wanted.clear();
        stream.after = digits;
        continue;
      }
      if (stream.ended || static_cast<std::int64_t>(batch.size()) == size) {
        promised = stream.after;
        break;
      }
      stream.after = digits;
      promised = std::max(promised, digits);
      const bool invalidates = event.view()["operationType"].as_string() == "invalidate";
      if (!is_wanted(stream, event, invalidates)) continue;
      auto passed = pipeline::run_pipeline(std::span(&event, 1), stream.filter, budget_);
      REQUIRE(passed.has_value());
      stream.ended = invalidates && ends_streams;
      for (BsonDoc& each : *passed) batch.push_back(std::move(each));
    }
    if (batch.empty() && !must) return std::nullopt;
    BsonDoc made = reply("nextBatch", stream.ended && batch.empty() ? 0 : id, batch, promised);
    if (stream.ended && batch.empty()) cursors_.erase(id);
    return made;
  }

  static bool is_wanted(Stream& stream, const BsonDoc& event, bool invalidates) {
    const DocView ns = event.view()["ns"].as_document();
    if (!stream.db.empty() && ns["db"].as_string() != stream.db) return false;
    if (!stream.collection.empty() && ns["coll"].as_string() != stream.collection) return false;
    const bool of_database = ResumeToken::parse(token_digits(event.view()["_id"]))->document_key_at == 0;
    return !invalidates || (of_database ? !stream.db.empty() : !stream.collection.empty());
  }

  BsonDoc kill(DocView body) {
    for (const Element& id : body["cursors"].as_document()) cursors_.erase(id.as_int64());
    return json(R"({"cursorsKilled": [], "cursorsNotFound": [], "cursorsAlive": [], "cursorsUnknown": [], "ok": 1})");
  }

  void look_at_noops() {
    if (noop_every_ == Duration::max() || Clock::now() < next_noop_) return;
    next_noop_ = Clock::now() + noop_every_;
    add_noop();
  }

  ShardRole& role_;
  SimConfig& config_;
  MemoryBudget budget_{"a shard's change streams", 0};
  std::uint64_t oplog_time_;
  int token_version_ = 1;
  std::vector<Entry> oplog_;
  std::vector<BsonDoc> events_;
  std::map<std::int64_t, Stream> cursors_;
  std::int64_t last_id_ = 1'000'000;
  Duration noop_every_ = seconds(10);
  TimePoint next_noop_{};
};

// A client's stream, and what it has shown.
struct Stream {
  SimClient* client = nullptr;
  std::int64_t id = 0;
  std::string mark;                 // of the last batch
  std::vector<std::string> events;  // digits
  std::vector<BsonDoc> documents;
};

struct StreamWorld {
  explicit StreamWorld(std::size_t shards, std::size_t known = 0, std::int32_t wire = wire_4_2,
                       std::vector<std::int32_t> shard_wires = {})
      : cluster({.wire_version = wire, .shard_wire_versions = std::move(shard_wires), .shards = shards}, log) {
    cluster.create_database("rec", 0);
    for (std::size_t i = 0; i < shards; ++i) {
      changes.push_back(std::make_unique<Changes>(cluster.role(i), cluster.config()));
      cluster.shard(i).play(*changes.back());
      if (known != 0 && i >= known) cluster.config().remove_shard(fmt::format("sh{}", i));
    }
    SimWorldOptions options;
    options.cluster = &cluster;
    options.config_db = true;
    options.workers = 2;
    world.emplace(std::move(options));
    client = world->client();
    other = world->client(1);
  }

  // As the driver says it: of rec.c, unless `target` says of what.
  Stream open(SimClient& by, std::string_view options = "", std::string_view stages = "",
              std::string_view target = R"("c", "$db": "rec")") {
    // `target` holds the first field's value, and the database.
    const std::string pipeline = fmt::format(R"([{{"$changeStream": {{{}}}}}{}])", options, stages);
    const BsonDoc reply = call(*world, by, fmt::format(R"({{"aggregate": {}, "pipeline": {}, "cursor": {{}}}})",
                                                       target, pipeline));
    Stream stream;
    stream.client = &by;
    take(stream, reply);
    return stream;
  }
  Stream after(SimClient& by, const std::string& digits, std::string_view how = "resumeAfter",
               std::string_view stages = "") {
    return open(by, fmt::format(R"("{}": {{"_data": "{}"}})", how, digits), stages);
  }
  void take(Stream& stream, const BsonDoc& reply) {
    INFO(to_json(reply));
    REQUIRE(is_ok(reply));
    stream.id = cursor_id(reply);
    collection = std::string(reply.view().find_path("cursor.ns").as_string());
    collection = collection.substr(collection.find('.') + 1);
    db = reply.view().find_path("cursor.ns").as_string();
    db = db.substr(0, db.find('.'));
    for (BsonDoc& each : batch_of(reply)) {
      CHECK(!each.view()["$sortKey"].exists());
      stream.events.emplace_back(token_digits(each.view()["_id"]));
      stream.documents.push_back(std::move(each));
    }
    const ValueView token = reply.view().find_path("cursor.postBatchResumeToken");
    const std::string mark(token_digits(token));
    CHECK(mark >= stream.mark);
    if (!stream.events.empty()) CHECK(mark >= stream.events.back());
    stream.mark = mark;
  }
  std::string get_more(const Stream& stream, int await_ms, int batch_size = 0) {
    return fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "{}", "maxTimeMS": {}{}, "$db": "{}"}})",
                       stream.id, collection, await_ms,
                       batch_size > 0 ? fmt::format(R"(, "batchSize": {})", batch_size) : "", db);
  }
  void more(Stream& stream, int await_ms, int batch_size = 0) {
    take(stream, call(*world, *stream.client, get_more(stream, await_ms, batch_size)));
  }
  // Until it has shown `events`, or `limit` has passed.
  void read(Stream& stream, std::size_t events, Duration limit = seconds(60)) {
    const TimePoint end = Clock::now() + limit;
    while (stream.id != 0 && stream.events.size() < events && Clock::now() < end) more(stream, 500);
  }
  void join(std::size_t shard) {
    const SimShardOptions& options = cluster.shard(shard).options();
    cluster.config().add_shard(fmt::format("sh{}", shard),
                               fmt::format("sh{}/{}:{}", shard, options.host, options.port));
  }
  void require_quiet() {
    CHECK(world->run_until(
        [&] {
          return std::all_of(changes.begin(), changes.end(), [](const auto& each) { return each->open() == 0; });
        },
        seconds(30)));
  }
  void kill(Stream& stream) {
    CHECK(is_ok(call(*world, *stream.client,
                     fmt::format(R"({{"killCursors": "{}", "cursors": [{{"$numberLong": "{}"}}], "$db": "{}"}})",
                                 collection, stream.id, db))));
  }

  SimLog log;
  std::vector<std::unique_ptr<Changes>> changes;
  SimCluster cluster;
  std::optional<SimWorld> world;
  std::unique_ptr<SimClient> client, other;  // of the two workers
  std::string db, collection;
};

using Digits = std::vector<std::string>;

}  // namespace

TEST_CASE("a stream over three shards shows every event once, in the order of tokens", "[cluster]") {
  StreamWorld sim(3);
  Stream stream = sim.open(*sim.client);
  CHECK(stream.events.empty());
  CHECK(!stream.mark.empty());
  Digits all;
  for (int i = 0; i < 20; ++i) all.push_back(sim.changes[static_cast<std::size_t>(i * 7 % 3)]->add("insert", i));
  sim.read(stream, all.size());
  CHECK(stream.events == all);
  // Another collection's are not its own.
  sim.changes[0]->add("insert", 1, "d");
  all.push_back(sim.changes[1]->add("delete", 2));
  sim.read(stream, all.size());
  CHECK(stream.events == all);
  sim.kill(stream);
  sim.require_quiet();
}

TEST_CASE("shards of a stream are told one time, to merge, and not to look up", "[cluster]") {
  StreamWorld sim(2);
  sim.open(*sim.client, R"("fullDocument": "updateLookup")");
  REQUIRE(sim.changes[0]->opened.size() == 1);
  REQUIRE(sim.changes[1]->opened.size() == 1);
  const BsonDoc& sent = sim.changes[0]->opened[0];
  const DocView options = options_of(sent);
  const std::uint64_t time = timestamp_of(options["startAtOperationTime"]);
  CHECK(time != 0);
  CHECK(time == timestamp_of(options_of(sim.changes[1]->opened[0])["startAtOperationTime"]));
  CHECK(!options["fullDocument"].exists());
  for (const char* flag : {"fromMongos", "needsMerge", "mergeByPBRT"}) CHECK(sent.view()[flag].truthy());
  CHECK(sent.view().find_path("cursor.batchSize").to_int64() == 0);
  CHECK(!sent.view()["shardVersion"].exists());
}

TEST_CASE("shards of 6.0 make pre- and post-images by themselves, if they are not told to leave it", "[cluster]") {
  StreamWorld sim(2, 0, wire_6_0);
  sim.open(*sim.client, R"("fullDocumentBeforeChange": "whenAvailable")");
  const BsonDoc& sent = sim.changes[0]->opened.at(0);
  CHECK(sent.view()["fromMongos"].truthy());
  CHECK_FALSE(sent.view()["needsMerge"].exists());
  CHECK(options_of(sent)["fullDocumentBeforeChange"].exists());
}

TEST_CASE("an idle shard delays no event for longer than it takes to write its note", "[cluster]") {
  StreamWorld sim(3);
  Stream stream = sim.open(*sim.client);
  sim.more(stream, 2000);
  const std::string event = sim.changes[1]->add("insert", 1);
  for (std::size_t i : {0u, 2u}) sim.changes[i]->add_noop();
  const TimePoint from = Clock::now();
  sim.read(stream, 1);
  CHECK(stream.events == Digits{event});
  CHECK(Clock::now() - from <= milliseconds(1100));
}

TEST_CASE("an idle stream answers when its wait ends, and asks no shard twice meanwhile", "[cluster]") {
  StreamWorld sim(2);
  Stream stream = sim.open(*sim.client);
  const std::string first = stream.mark;
  for (int i = 0; i < 50; ++i) {
    const TimePoint from = Clock::now();
    sim.more(stream, 100);
    CHECK(Clock::now() - from >= milliseconds(100));
    CHECK(Clock::now() - from < milliseconds(150));
  }
  // Five seconds; each getMore to a shard waits as long as the client's first one that needed it.
  for (const auto& each : sim.changes) {
    CHECK(each->asked <= 51);
    CHECK(each->waiting <= 1);
  }
  sim.world->run_for(seconds(11));
  for (int i = 0; i < 3; ++i) sim.more(stream, 1000);
  CHECK(stream.mark > first);
}

TEST_CASE("a client that does not wait gets what has come meanwhile", "[cluster]") {
  StreamWorld sim(2);
  Stream stream = sim.open(*sim.client);
  const std::string event = sim.changes[0]->add("insert", 1);
  sim.changes[1]->add_noop();
  for (int i = 0; i < 100 && stream.events.empty(); ++i) {
    sim.more(stream, 1);
    sim.world->run_for(milliseconds(10));
  }
  CHECK(stream.events == Digits{event});
  for (const auto& each : sim.changes) CHECK(each->asked <= 12);
}

TEST_CASE("an event waits for the slowest shard, and the client for neither", "[cluster]") {
  StreamWorld sim(2);
  for (const auto& each : sim.changes) each->write_no_noops();
  Stream stream = sim.open(*sim.client);
  sim.changes[0]->add("insert", 1);
  const TimePoint from = Clock::now();
  for (int i = 0; i < 10; ++i) sim.more(stream, 300);
  CHECK(Clock::now() - from < seconds(4));
  CHECK(stream.events.empty());
  const std::size_t asked = sim.changes[0]->asked;
  for (int i = 0; i < 10; ++i) sim.more(stream, 300);
  CHECK(sim.changes[0]->asked == asked);  // its event is here
  sim.changes[1]->add_noop();
  sim.read(stream, 1);
  CHECK(stream.events.size() == 1);
}

TEST_CASE("a stream begins after any of its tokens, on any worker", "[cluster]") {
  StreamWorld sim(3);
  Stream stream = sim.open(*sim.client);
  const std::string beginning = stream.mark;
  Digits all;
  for (int i = 0; i < 12; ++i) all.push_back(sim.changes[static_cast<std::size_t>(i * 5 % 3)]->add("insert", i));
  sim.read(stream, all.size());
  REQUIRE(stream.events == all);
  for (std::size_t i = 0; i < all.size(); i += 3) {
    Stream later = sim.after(i % 2 ? *sim.client : *sim.other, all[i], i % 2 ? "resumeAfter" : "startAfter");
    CHECK(later.mark == all[i]);
    sim.read(later, all.size() - i - 1);
    CHECK(later.events == Digits(all.begin() + static_cast<std::ptrdiff_t>(i) + 1, all.end()));
    sim.kill(later);
  }
  // A time's token.
  Stream from_mark = sim.after(*sim.other, beginning);
  sim.read(from_mark, all.size());
  CHECK(from_mark.events == all);
  // A filter of the client's does not hide the event to begin after.
  Stream filtered = sim.after(*sim.client, all[4], "resumeAfter", R"(, {"$match": {"documentKey._id": {"$gt": 7}}})");
  sim.read(filtered, 4);
  CHECK(filtered.events == Digits(all.begin() + 8, all.end()));
}

TEST_CASE("a stream begins at a time", "[cluster]") {
  StreamWorld sim(2);
  sim.changes[0]->add("insert", 1);
  const std::string second = sim.changes[1]->add("insert", 2), third = sim.changes[0]->add("insert", 3);
  const auto token = ResumeToken::parse(second);
  Stream stream = sim.open(*sim.client, fmt::format(R"("startAtOperationTime": {{"$timestamp": {{"t": {}, "i": {}}}}})",
                                                    token->cluster_time >> 32, token->cluster_time & 0xffffffff));
  sim.read(stream, 2);
  CHECK(stream.events == Digits{second, third});
}

TEST_CASE("a token whose event is gone cannot be resumed", "[cluster]") {
  StreamWorld sim(2);
  std::string gone = sim.changes[0]->add("insert", 1);
  sim.changes[1]->add("insert", 2);
  gone.replace(gone.size() - 6, 2, "7F");
  Stream stream = sim.after(*sim.client, gone);
  BsonDoc reply;
  do reply = call(*sim.world, *sim.client, sim.get_more(stream, 1000));
  while (is_ok(reply) && batch_of(reply).empty());
  CHECK(code_of(reply) == 40585);
  sim.require_quiet();
}

TEST_CASE("an invalidation ends the stream on all shards, and another may start after it", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_7_0);
  StreamWorld sim(2, 0, wire);
  for (const auto& each : sim.changes) each->looks_for_token = each->ends_streams = wire == wire_7_0;
  sim.cluster.shard_collection("rec.c", json(R"({"_id": 1})"), {json(R"({"_id": 100})")});
  Stream stream = sim.open(*sim.client);
  const std::string before = sim.changes[1]->add("insert", 1);
  const std::string invalidate = sim.changes[0]->add("drop", 0);
  Digits later{sim.changes[1]->add("insert", 2)};
  const std::string again_dropped = sim.changes[1]->add("drop", 0);
  sim.read(stream, 10);
  CHECK(stream.id == 0);
  REQUIRE(stream.events.size() == 3);
  CHECK(stream.events.front() == before);
  CHECK(stream.events.back() == invalidate);
  CHECK(stream.documents.back().view()["operationType"].as_string() == "invalidate");
  sim.require_quiet();
  // The other shard's drop of the same collection is not a second one.
  Stream again = sim.after(*sim.other, invalidate, "startAfter");
  sim.read(again, 2);
  REQUIRE(again.events.size() == 2);
  CHECK(again.events.front() == later.front());
  CHECK(again.documents.back().view()["operationType"].as_string() == "drop");
  CHECK(again.id != 0);
  // A new collection of that name is another one, on either shard.
  const std::size_t shard = GENERATE(std::size_t{0}, std::size_t{1});
  sim.cluster.drop("rec.c");
  sim.changes[1]->add("insert", 3);
  sim.changes[0]->add("insert", 4);
  sim.changes[shard]->add("drop", 0);
  sim.read(again, 10);
  CHECK(again.id == 0);
  CHECK(again.events.size() == 6);
  CHECK(again.documents.back().view()["operationType"].as_string() == "invalidate");
  CHECK(again_dropped < again.events.back());
  sim.require_quiet();
}

TEST_CASE("an invalidation of a database is passed over once on each shard", "[cluster]") {
  StreamWorld sim(2, 0, wire_7_0);
  const std::string_view of_db = R"(1, "$db": "rec")";
  Stream stream = sim.open(*sim.client, "", "", of_db);
  const std::string invalidate = sim.changes[0]->add("dropDatabase", 0);
  sim.changes[1]->add("dropDatabase", 0);
  sim.read(stream, 2);
  REQUIRE(stream.events == Digits{stream.events.front(), invalidate});
  Stream again = sim.open(*sim.other, fmt::format(R"("startAfter": {{"_data": "{}"}})", invalidate), "", of_db);
  const std::string insert = sim.changes[1]->add("insert", 1);
  sim.read(again, 2);
  REQUIRE(again.events.size() == 2);
  CHECK(again.events.back() == insert);
  const std::string second = sim.changes[0]->add("dropDatabase", 0);
  sim.read(again, 4);
  CHECK(again.id == 0);
  CHECK(again.events.back() == second);
}

TEST_CASE("a stream may start after an invalidation, but not resume after it", "[cluster]") {
  StreamWorld sim(2, 0, GENERATE(wire_4_2, wire_7_0));
  const std::string invalidate = sim.changes[0]->add("drop", 0);
  const BsonDoc refused = call(*sim.world, *sim.client, fmt::format(
      R"({{"aggregate": "c", "pipeline": [{{"$changeStream": {{"resumeAfter": {{"_data": "{}"}}}}}}], "cursor": {{}},
           "$db": "rec"}})", invalidate));
  CHECK(code_of(refused) == 260);
}

TEST_CASE("a stream goes on after another release was installed, whose tokens have another form", "[cluster]") {
  const int from = GENERATE(1, 2);
  StreamWorld sim(2, 0, GENERATE(wire_6_0, wire_7_0, wire_8_0));
  for (const auto& each : sim.changes) {
    each->looks_for_token = true;
    each->install(from);
  }
  sim.cluster.shard_collection("rec.c", json(R"({"_id": 1})"), {json(R"({"_id": 100})")});
  Stream before = sim.open(*sim.client);
  const std::string beginning = before.mark;
  for (int i = 0; i < 6; ++i) sim.changes[static_cast<std::size_t>(i % 2)]->add(i == 3 ? "delete" : "insert", i);
  sim.changes[0]->add("drop", 0);
  const std::string after_drop = sim.changes[1]->add("insert", 7);
  sim.read(before, 8);
  REQUIRE(before.events.size() == 8);
  for (const auto& each : sim.changes) each->install(3 - from);
  Stream now = sim.after(*sim.client, beginning);
  sim.read(now, 8);
  REQUIRE(now.events.size() == 8);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(now.events[i] != before.events[i]);
    Stream later = sim.after(i % 2 ? *sim.client : *sim.other, before.events[i]);
    sim.read(later, 7 - i);
    CHECK(later.events == Digits(now.events.begin() + static_cast<std::ptrdiff_t>(i) + 1, now.events.end()));
  }
  Stream started = sim.after(*sim.other, before.events.back(), "startAfter");
  sim.read(started, 1);
  REQUIRE(started.events.size() == 1);
  CHECK(started.events[0].substr(0, 18) == after_drop.substr(0, 18));
}

TEST_CASE("events of one time are in another order after an upgrade, and none is lost", "[cluster]") {
  StreamWorld sim(3, 0, wire_8_0);
  const std::uint64_t time = sim.cluster.config().tick();
  Digits before{sim.changes[0]->add("delete", 1, "c", "rec", time), sim.changes[1]->add("insert", 2, "c", "rec", time),
                sim.changes[2]->add("delete", 3, "c", "rec", time)};
  for (const auto& each : sim.changes) each->install(2);
  for (std::size_t i = 0; i < 3; ++i) {
    Stream later = sim.after(*sim.client, before[i]);
    sim.read(later, 2 - i);
    for (const auto& each : sim.changes) each->add_noop();
    sim.more(later, 500);
    std::vector<std::int64_t> ids;
    for (const BsonDoc& each : later.documents) {
      ids.push_back(each.view().find_path("documentKey._id").to_int64().value_or(0));
    }
    std::sort(ids.begin(), ids.end());
    CHECK(ids == (i == 0 ? std::vector<std::int64_t>{2, 3} : std::vector<std::int64_t>(2 - i, 3)));
  }
}

TEST_CASE("while shards of 6.0 are upgraded, all are told to make the tokens that they all know", "[cluster]") {
  struct Case {
    std::int32_t first, second;
    bool told;
  };
  const Case each = GENERATE(Case{wire_6_0, wire_7_0, true}, Case{wire_6_0, wire_6_0, false},
                             Case{wire_7_0, wire_7_0, false}, Case{wire_7_0, wire_8_0, false},
                             Case{wire_5_0, wire_6_0, false});
  StreamWorld sim(2, 0, each.second, {each.first, each.second});
  sim.open(*sim.client);
  for (const auto& shard : sim.changes) {
    REQUIRE(shard->opened.size() == 1);
    const ValueView form = shard->opened[0].view()["$_generateV2ResumeTokens"];
    CHECK(form.exists() == each.told);
    CHECK(!form.truthy());
  }
}

TEST_CASE("the client's stages see every event, and shards leave out what a filter does", "[cluster]") {
  StreamWorld sim(2);
  Stream stream = sim.open(*sim.client, "", R"(, {"$match": {"operationType": "insert"}},
      {"$addFields": {"seen": {"$add": ["$documentKey._id", 1]}}}, {"$project": {"ns": 0}})");
  sim.changes[0]->add("delete", 1);
  const std::string event = sim.changes[1]->add("insert", 2);
  const std::string end = sim.changes[0]->add("drop", 0);
  sim.read(stream, 2);
  CHECK(stream.id == 0);
  REQUIRE(stream.events == Digits{event});
  CHECK(stream.documents[0].view()["seen"].to_int64() == 3);
  CHECK(!stream.documents[0].view()["ns"].exists());
  CHECK(stream.mark == end);
}

TEST_CASE("shards leave out the images that the client does not want", "[cluster]") {
  struct Case {
    const char* stages;
    const char* unset;  // what shards are told
    const char* options = "";
  };
  const Case cases[] = {
      {R"({"$unset": "fullDocumentBeforeChange"})", R"([ "fullDocumentBeforeChange" ])"},
      {R"({"$unset": ["fullDocument.a", "updateDescription"]})", R"([ "fullDocument.a", "updateDescription" ])"},
      {R"({"$project": {"fullDocument": 0}})", R"([ "fullDocument" ])"},
      {R"({"$match": {"operationType": "insert"}}, {"$project": {"fullDocument": 0}})", R"([ "fullDocument" ])"},
      {R"({"$match": {"fullDocument.a": 1}}, {"$project": {"fullDocument": 0}})", ""},
      {R"({"$project": {"fullDocument": 0}})", "", R"("fullDocument": "updateLookup")"},
      {R"({"$project": {"fullDocument": 0, "ns": 0}})", ""},
      {R"({"$project": {"documentKey": 1}})", ""},
      {R"({"$unset": "ns"})", ""},
  };
  for (const Case& each : cases) {
    CAPTURE(each.stages, each.options);
    StreamWorld sim(2);
    Stream stream = sim.open(*sim.client, each.options, std::string(", ") + each.stages);
    std::string unset;
    for (const Element& stage : sim.changes[0]->opened.back().view()["pipeline"].as_document()) {
      const Element first = stage.as_document().first();
      if (first.name == "$unset") unset = to_json(first);
    }
    CHECK(unset == each.unset);
    const std::string event = sim.changes[1]->add("insert", 2);
    sim.read(stream, 1);
    if (std::string_view(each.stages).find("fullDocument.a\": 1") == std::string_view::npos) {
      CHECK(stream.events == Digits{event});
    }
  }
}

TEST_CASE("a database's next drop ends its stream, though a filter hides what is written to it", "[cluster]") {
  StreamWorld sim(2, 0, wire_7_0);
  const std::string_view of_db = R"(1, "$db": "rec")";
  Stream stream = sim.open(*sim.client, "", "", of_db);
  const std::string invalidate = sim.changes[0]->add("dropDatabase", 0);
  sim.read(stream, 2);
  Stream again = sim.open(*sim.other, fmt::format(R"("startAfter": {{"_data": "{}"}})", invalidate),
                          R"(, {"$match": {"operationType": "update"}})", of_db);
  sim.changes[1]->add("insert", 1);
  const std::string second = sim.changes[1]->add("dropDatabase", 0);
  for (int i = 0; i < 5 && again.id != 0; ++i) sim.read(again, 1);
  CHECK(again.id == 0);
}

TEST_CASE("a stage that takes the token away is an error, and one that no stream may have is refused", "[cluster]") {
  StreamWorld sim(2);
  Stream stream = sim.open(*sim.client, "", R"(, {"$project": {"_id": 0}})");
  sim.changes[0]->add("insert", 1);
  BsonDoc reply;
  do reply = call(*sim.world, *sim.client, sim.get_more(stream, 1000));
  while (is_ok(reply) && batch_of(reply).empty());
  CHECK(code_of(reply) == 280);
  CHECK(to_json(reply.view()["errorLabels"]) == R"([ "NonResumableChangeStreamError" ])");
  sim.require_quiet();
  CHECK(code_of(call(*sim.world, *sim.client, R"({"aggregate": "c", "pipeline": [{"$changeStream": {}},
      {"$sort": {"_id": 1}}], "cursor": {}, "$db": "rec"})")) == 20);
}

TEST_CASE("streams of a database and of the cluster are on every shard", "[cluster]") {
  StreamWorld sim(2);
  Stream of_db = sim.open(*sim.client, "", "", R"(1, "$db": "rec")");
  CHECK(sim.collection == "$cmd.aggregate");
  const std::string in_c = sim.changes[0]->add("insert", 1, "c"), in_d = sim.changes[1]->add("insert", 2, "d");
  const std::string elsewhere = sim.changes[0]->add("insert", 3, "e", "later");
  sim.read(of_db, 3, seconds(15));
  CHECK(of_db.events == Digits{in_c, in_d});
  Stream of_all = sim.open(*sim.other, fmt::format(R"("allChangesForCluster": true, "resumeAfter": {{"_data": "{}"}})",
                                                   in_c), "", R"(1, "$db": "admin")");
  sim.read(of_all, 2);
  CHECK(of_all.events == Digits{in_d, elsewhere});
}

TEST_CASE("a shard that fails ends the stream, with an error that drivers resume after", "[cluster]") {
  StreamWorld sim(2);
  Stream stream = sim.open(*sim.client);
  Digits all{sim.changes[0]->add("insert", 1)};
  sim.read(stream, 1);
  sim.cluster.shard(1).misbehave(SimShard::Fault::not_primary, "getMore");
  all.push_back(sim.changes[1]->add("insert", 2));
  BsonDoc reply;
  do reply = call(*sim.world, *sim.client, sim.get_more(stream, 1000));
  while (is_ok(reply) && batch_of(reply).empty());
  CHECK(code_of(reply) == 6);
  REQUIRE(reply.view()["errorLabels"].is_array());
  CHECK(reply.view()["errorLabels"].as_document().first().as_string() == "ResumableChangeStreamError");
  sim.world->run_until([&] { return sim.changes[0]->open() == 0; }, seconds(30));
  CHECK(sim.changes[0]->open() == 0);
  Stream again = sim.after(*sim.client, stream.mark);
  sim.read(again, 1);
  CHECK(again.events == Digits{all[1]});
}

TEST_CASE("a stream that is killed, or whose client has left, ends at shards that wait", "[cluster]") {
  StreamWorld sim(2);
  for (const bool killed : {true, false}) {
    auto watcher = sim.world->client();
    Stream stream = sim.open(*watcher);
    auto pending = start(*sim.world, *watcher, json(sim.get_more(stream, 60'000)));
    REQUIRE(sim.world->run_until([&] { return sim.changes[0]->waiting + sim.changes[1]->waiting == 2; }, seconds(5)));
    if (killed) {
      Stream same = stream;
      same.client = sim.other.get();
      sim.kill(same);
      REQUIRE(sim.world->run_until([&] { return pending->done; }, seconds(5)));
      CHECK(code_of(*pending->reply) == 237);
    } else {
      watcher->reset();
    }
    CHECK(sim.world->run_until(
        [&] {
          return std::all_of(sim.changes.begin(), sim.changes.end(),
                             [](const auto& each) { return each->open() == 0 && each->waiting == 0; });
        },
        minutes(2)));
  }
}

TEST_CASE("events of a shard that is added come in their order, whoever tells of it", "[cluster]") {
  StreamWorld sim(3, 2, GENERATE(wire_4_2, wire_7_0));
  Stream stream = sim.open(*sim.client);
  Digits all{sim.changes[0]->add("insert", 1)};
  sim.read(stream, 1);
  CHECK(sim.changes[2]->opened.empty());
  sim.join(2);
  // The donor tells of it before the first chunk is there; nobody, if there are none.
  const auto told = GENERATE(as<std::string>(), "", "kNewShardDetected", "migrateChunkToNewShard");
  if (!told.empty()) sim.changes[0]->add(told, 0);
  all.push_back(sim.changes[2]->add("insert", 2));
  all.push_back(sim.changes[1]->add("insert", 3));
  all.push_back(sim.changes[2]->add("insert", 4));
  sim.read(stream, all.size(), seconds(15));
  CHECK(stream.events == all);
  CHECK(sim.changes[2]->opened.size() == 1);
}

TEST_CASE("no event of a shard that is added is lost when the client resumes", "[cluster]") {
  StreamWorld sim(3, 2);
  Stream stream = sim.open(*sim.client);
  sim.join(2);
  Digits all{sim.changes[2]->add("insert", 1), sim.changes[0]->add("insert", 2)};
  sim.changes[1]->add_noop();
  sim.read(stream, 1);
  REQUIRE(!stream.events.empty());
  Stream again = sim.after(*sim.other, stream.mark);
  sim.read(again, all.size() - stream.events.size());
  stream.events.insert(stream.events.end(), again.events.begin(), again.events.end());
  CHECK(stream.events == all);
}

TEST_CASE("while the config servers cannot say which shards there are, events wait", "[cluster]") {
  StreamWorld sim(3, 2);
  Stream stream = sim.open(*sim.client);
  sim.cluster.config_role(0).lag();
  sim.join(2);
  Digits all{sim.changes[2]->add("insert", 1), sim.changes[0]->add("insert", 2)};
  sim.changes[1]->add_noop();
  for (int i = 0; i < 3; ++i) {
    const TimePoint from = Clock::now();
    sim.more(stream, 500);
    CHECK(Clock::now() - from < milliseconds(700));
  }
  CHECK(stream.events.empty());
  sim.cluster.config_role(0).catch_up();
  sim.read(stream, 2, seconds(15));
  CHECK(stream.events == all);
}

TEST_CASE("the config servers are asked ten times a second at most, however many streams have events", "[cluster]") {
  constexpr std::size_t count = 50;
  StreamWorld sim(2);
  std::vector<std::unique_ptr<SimClient>> clients;
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < count; ++i) {
    clients.push_back(sim.world->client(i % 2));
    streams.push_back(sim.open(*clients.back()));
  }
  const auto asked = [&] { return sim.cluster.config_server(0).seen("find"); };
  std::uint64_t before = asked();
  Digits all;
  for (int turn = 0; turn < 40; ++turn) {
    all.push_back(sim.changes[0]->add("insert", turn));
    sim.changes[1]->add_noop();
    std::vector<std::shared_ptr<Pending>> pending;
    for (const Stream& each : streams) pending.push_back(start(*sim.world, *each.client, json(sim.get_more(each, 50))));
    sim.world->run_for(milliseconds(50));
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(sim.world->run_until([&] { return pending[i]->done; }, seconds(1)));
      REQUIRE(pending[i]->reply);
      sim.take(streams[i], *pending[i]->reply);
    }
  }
  CHECK(asked() - before <= 80);
  for (Stream& each : streams) {
    sim.read(each, all.size());
    CHECK(each.events == all);
  }
  // Idle ones say how far they are, but hardly ask for it.
  before = asked();
  const std::string mark = streams[0].mark;
  for (int i = 0; i < 25; ++i) {
    for (Stream& each : streams) sim.more(each, 1);
    sim.world->run_for(seconds(1));
  }
  CHECK(asked() - before <= 15);
  CHECK(streams[0].mark > mark);
}

TEST_CASE("updates are looked up where the document is now", "[cluster]") {
  StreamWorld sim(2);
  sim.cluster.shard_collection("rec.c", json(R"({"_id": 1})"), {json(R"({"_id": 100})")});
  sim.cluster.store("rec.c", json(R"({"_id": 5, "text": "as it is now"})"));
  Stream stream = sim.open(*sim.client, R"("fullDocument": "updateLookup")",
                           R"(, {"$match": {"fullDocument.text": {"$ne": "nothing"}}})");
  sim.changes[0]->add("update", 5);
  sim.read(stream, 1);
  sim.changes[0]->add("update", 5);
  sim.cluster.move("rec.c", json(R"({"_id": 5})"), 1);
  sim.changes[0]->add("update", 6);
  sim.changes[1]->add("insert", 7);
  sim.read(stream, 4);
  REQUIRE(stream.events.size() == 4);
  for (std::size_t i : {0u, 1u}) {
    INFO(to_json(stream.documents[i]));
    const ValueView text = stream.documents[i].view().find_path("fullDocument.text");
    REQUIRE(text.is_string());
    CHECK(text.as_string() == "as it is now");
  }
  CHECK(stream.documents[2].view()["fullDocument"].is_null());
  CHECK(stream.documents[3].view().find_path("fullDocument._id").to_int64() == 7);
  // A collection of that name, but another one.
  sim.changes[0]->add("update", 5);
  sim.cluster.drop("rec.c");
  sim.cluster.shard_collection("rec.c", json(R"({"_id": 1})"), {json(R"({"_id": 100})")});
  sim.cluster.store("rec.c", json(R"({"_id": 5, "text": "of the new one"})"));
  sim.read(stream, 5);
  REQUIRE(stream.events.size() == 5);
  CHECK(stream.documents[4].view()["fullDocument"].is_null());
}

TEST_CASE("lookups and stages of a stream have its read preference, whatever the getMore says", "[cluster]") {
  StreamWorld sim(2);
  sim.cluster.shard_collection("rec.c", json(R"({"_id": 1})"), {json(R"({"_id": 100})")});
  sim.cluster.store("rec.c", json(R"({"_id": 5})"));
  const bool prefers = GENERATE(true, false);
  Stream stream = sim.open(
      *sim.client, R"("fullDocument": "updateLookup")", R"(, {"$addFields": {"z": {"$trim": {"input": " x"}}}})",
      fmt::format(R"("c", {}"$db": "rec")", prefers ? R"("$readPreference": {"mode": "secondaryPreferred"}, )" : ""));
  for (const auto& each : sim.changes) each->staged.clear();
  sim.changes[0]->add("update", 5);
  sim.read(stream, 1);
  REQUIRE(sim.changes[0]->finds.size() == 1);
  REQUIRE(sim.changes[0]->staged.size() == 1);
  for (const BsonDoc* sent : {&sim.changes[0]->finds[0], &sim.changes[0]->staged[0]}) {
    const ValueView mode = sent->view().find_path("$readPreference.mode");
    CHECK((mode.is_string() && mode.as_string() == "secondaryPreferred") == prefers);
  }
}

TEST_CASE("updates of an unsharded collection are looked up by its uuid", "[cluster]") {
  StreamWorld sim(2);
  sim.cluster.store("rec.c", json(R"({"_id": 5, "text": "of a new collection with the old one's name"})"));
  Stream stream = sim.open(*sim.client, R"("fullDocument": "updateLookup")");
  const bool knows = GENERATE(true, false);
  sim.changes[0]->knows_uuids = knows;
  sim.changes[0]->add("update", 5);
  sim.read(stream, 1);
  REQUIRE(stream.documents.size() == 1);
  CHECK(sim.changes[0]->found_by_uuid == 1);
  // Without the right, the name is all that there is.
  CHECK(stream.documents[0].view()["fullDocument"].is_null() == knows);
}

TEST_CASE("stages that the router does not evaluate are run on each event by its shard", "[cluster]") {
  StreamWorld sim(2);
  // It evaluates the others, but not for all values and not with time zones: a later event may have such a one.
  const std::string_view z = GENERATE(R"({"$trim": {"input": " x"}})", R"({"$round": ["$fullDocument.a", 1]})",
                                      R"({"$dayOfMonth": {"date": "$clusterTime", "timezone": "Europe/Berlin"}})");
  Stream stream = sim.open(*sim.client, "", fmt::format(R"(, {{"$addFields": {{"z": {}}}}})", z));
  REQUIRE(sim.changes[0]->staged.size() + sim.changes[1]->staged.size() == 1);  // are they known?
  for (const auto& each : sim.changes) each->staged.clear();
  sim.changes[0]->add("insert", 5);
  sim.changes[1]->add("insert", 7);
  sim.changes[1]->add("insert", 8);
  sim.read(stream, 2);
  REQUIRE(stream.documents.size() == 2);
  CHECK(stream.documents[0].view().find_path("fullDocument._id").to_int64() == 5);
  CHECK(stream.documents[1].view().find_path("fullDocument._id").to_int64() == 8);
  CHECK(stream.documents[1].view()["z"].to_int64() == 1);
  CHECK(sim.changes[0]->staged.size() == 1);
  CHECK(sim.changes[1]->staged.size() == 2);
  const BsonDoc refused = call(*sim.world, *sim.client, R"({"aggregate": "c", "pipeline": [{"$changeStream": {}},
      {"$addFields": {"z": {"$nosuch": 1}}}], "cursor": {}, "$db": "rec"})");
  CHECK(refused.view()["code"].to_int64() == 168);
}

TEST_CASE("a thousand idle streams over three shards cost three kilobytes each, and a getMore a second", "[cluster]") {
  constexpr std::size_t count = 1000;
  StreamWorld sim(3);
  for (const auto& each : sim.changes) each->looks_every = milliseconds(100);
  std::vector<std::unique_ptr<SimClient>> clients;
  for (std::size_t i = 0; i < count; ++i) clients.push_back(sim.world->client(i % 2));
  // What connections keep is not a stream's.
  for (const auto& each : clients) call(*sim.world, *each, R"({"ping": 1, "$db": "admin"})");
  std::vector<Stream> streams;
  const auto used = [&] { return sim.world->shared().memory.process.usage().used_bytes; };
  const std::uint64_t before = used();
  for (const auto& each : clients) streams.push_back(sim.open(*each));
  CHECK((used() - before) / count < 3072);
  for (int turn = 0; turn < 2; ++turn) {
    for (const auto& each : sim.changes) each->asked = 0;
    std::vector<std::shared_ptr<Pending>> pending;
    for (const Stream& each : streams) {
      pending.push_back(start(*sim.world, *each.client, json(sim.get_more(each, 5000))));
    }
    sim.world->run_for(milliseconds(3500));
    for (const auto& each : sim.changes) CHECK(each->asked <= count * 4);
    const std::string event = sim.changes[1]->add("insert", turn);
    for (std::size_t i : {0u, 2u}) sim.changes[i]->add_noop();
    REQUIRE(sim.world->run_until(
        [&] { return std::all_of(pending.begin(), pending.end(), [](const auto& each) { return each->done; }); },
        milliseconds(1500)));
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(pending[i]->reply);
      sim.take(streams[i], *pending[i]->reply);
      REQUIRE(streams[i].events.size() == static_cast<std::size_t>(turn) + 1);
      CHECK(streams[i].events.back() == event);
    }
  }
}

TEST_CASE("a damaged batch ends a stream, and does not pass for an empty one", "[cluster]") {
  StreamWorld sim(2);
  Stream stream = sim.open(*sim.client);
  sim.changes[0]->damages = true;
  BsonDoc reply = call(*sim.world, *sim.client, sim.get_more(stream, 1000));
  for (int i = 0; i < 4 && is_ok(reply); ++i) reply = call(*sim.world, *sim.client, sim.get_more(stream, 1000));
  CHECK(code_of(reply) == 1);
  sim.require_quiet();
}

TEST_CASE("seeded: any number of events, batches, waits and resumptions lose nothing", "[cluster]") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u, 4u, 5u, 6u);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  StreamWorld sim(1 + below(4));
  Stream stream = sim.open(*sim.client);
  Digits all, shown;
  int id = 0;
  for (int turn = 0; turn < 150; ++turn) {
    const std::size_t shard = below(sim.changes.size());
    switch (below(5)) {
      case 0:
      case 1:
        for (std::size_t i = below(6); i > 0; --i) all.push_back(sim.changes[shard]->add("insert", ++id % 250));
        break;
      case 2: sim.changes[shard]->add_noop(); break;
      case 3: sim.more(stream, static_cast<int>(1 + below(300)), static_cast<int>(below(4))); break;
      default:
        if (below(4) != 0) break;
        shown.insert(shown.end(), stream.events.begin(), stream.events.end());
        if (below(2) == 0) sim.kill(stream);
        stream = sim.after(below(2) ? *sim.client : *sim.other, std::string(stream.mark));
        break;
    }
  }
  sim.read(stream, all.size() - shown.size());
  shown.insert(shown.end(), stream.events.begin(), stream.events.end());
  CHECK(shown == all);
}

}  // namespace spillway::test
