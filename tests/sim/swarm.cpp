#include "tests/sim/swarm.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "proxy/exec/pipeline/run.h"
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15u + 7) {}
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool percent(int chance) { return between(0, 99) < chance; }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(list.size()) - 1))];
  }
  std::uint64_t seed() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

// What the seed decides before anything runs.
struct Setting {
  std::uint64_t seed;
  bool lossy;        // connections and shards may break; otherwise everything is only slow
  bool replica_set;  // shards take transaction numbers
  std::size_t shards, workers, clients;
  int span;          // documents on each shard
  int operations;    // of each client
  std::size_t text_bytes;
  FaultOptions faults;
};

Setting draw_setting(std::uint64_t seed) {
  Dice dice(seed);
  Setting setting{};
  setting.seed = seed;
  setting.lossy = seed % 3 != 0;
  setting.replica_set = dice.percent(50);
  setting.shards = static_cast<std::size_t>(dice.between(1, 4));
  setting.workers = static_cast<std::size_t>(dice.between(1, 2));
  setting.clients = static_cast<std::size_t>(dice.between(2, 6));
  setting.span = static_cast<int>(dice.between(5, 40));
  setting.operations = static_cast<int>(dice.between(8, 20));
  setting.faults = FaultOptions::swarm(seed);
  const bool drips = setting.faults.read_bytes_max > 0 || setting.faults.write_bytes_max > 0;
  setting.text_bytes = static_cast<std::size_t>(drips ? dice.between(0, 50) : dice.between(0, 500));
  if (!drips && dice.percent(20)) setting.text_bytes = 20'000;  // batches that stream
  if (!setting.lossy) {
    setting.faults.refuse_percent = 0;
    setting.faults.reset_permille = 0;
    setting.faults.half_close_permille = 0;
  }
  return setting;
}

std::string describe(const Setting& setting) {
  const FaultOptions& faults = setting.faults;
  return fmt::format(
      "{}, {} shards{}, {} workers, {} clients x {} operations, {} documents per shard of {} bytes; latency {} us, "
      "partial {}/{} %, blocks {} %, refuses {} %, resets {}, half-closes {}, stalls {} permille, bytes {}/{}",
      setting.lossy ? "lossy" : "slow", setting.shards, setting.replica_set ? " (replica sets)" : "",
      setting.workers, setting.clients, setting.operations, setting.span, setting.text_bytes,
      faults.latency_max.count() / 1000, faults.partial_read_percent, faults.partial_write_percent,
      faults.would_block_percent, faults.refuse_percent, faults.reset_permille, faults.half_close_permille,
      faults.stall_permille, faults.read_bytes_max, faults.write_bytes_max);
}

SimWorldOptions world_options(const Setting& setting) {
  Dice dice(setting.seed + 1);
  SimShardOptions like;
  if (setting.replica_set) like.set_name = "rs";
  SimWorldOptions options;
  options.shards = shard_list(setting.shards, like);
  for (SimShardOptions& shard : options.shards) {
    using SortKeys = SimShardOptions::SortKeys;
    static const std::vector<SortKeys> forms = {SortKeys::none, SortKeys::object, SortKeys::array, SortKeys::array};
    shard.sort_keys = dice.one_of(forms);
  }
  options.workers = setting.workers;
  options.routing = "  collections:\n" + ranged_collection("app.docs", setting.shards, setting.span) +
                    "    - {ns: app.log, key: {_id: hashed}}\n";
  options.faults = setting.faults;
  options.cursor_timeout_ms = 120'000;
  options.gateway.pool_max = static_cast<std::size_t>(dice.percent(50) ? dice.between(1, 6) : 100);
  return options;
}

struct Query {
  std::string collection;
  BsonDoc filter, sort;
  bool sorted = false, total_order = false;
  std::int64_t skip = 0, limit = 0;
  BsonDoc command;
  std::vector<BsonDoc> expected;  // without skip and limit
  std::size_t count = 0;          // how many a whole scan returns
};

class Swarm {
 public:
  explicit Swarm(const Setting& setting) : setting_(setting), world_(world_options(setting)) { store(); }

  SwarmResult run();

 private:
  struct Member {
    Member(std::size_t number, std::uint64_t seed, std::unique_ptr<SimClient> a, std::unique_ptr<SimClient> b)
        : index(number), dice(seed), first(std::move(a)), second(std::move(b)) {}
    std::size_t index;
    Dice dice;
    std::unique_ptr<SimClient> first, second;
    std::int64_t txn_number = 0;
    int next_id = 0;
    bool done = false;
  };

  void store();
  Task<void> live(Member* member);
  Task<void> something(Member& member);
  Task<void> chaos();
  Task<std::optional<BsonDoc>> ask(Member& member, SimClient& client, BsonDoc command);
  Task<void> point_find(Member& member);
  Task<void> scan(Member& member);
  Task<bool> leave_scan(Member& member, const Query& query, std::int64_t id);
  Task<void> insert(Member& member);
  Task<void> count(Member& member);
  Task<void> group(Member& member);
  Task<void> pipelined(Member& member);
  Query draw_query(Dice& dice);
  void check_documents(const Query& query, const std::vector<BsonDoc>& returned, bool whole);
  void check_inserted();
  void check_cursors();
  void settle();
  void fail(std::string what) { result_.failures.push_back(std::move(what)); }
  const BsonDoc* known(const std::string& collection, DocView document) const;

  Setting setting_;
  SimWorld world_;
  SwarmResult result_;
  std::vector<BsonDoc> docs_, plain_;
  std::vector<std::unique_ptr<Member>> members_;
  std::set<std::string> acknowledged_, sent_;
  MemoryBudget budget_{"expectations", 0};
  bool ending_ = false;
  bool chaos_done_ = false;
};

void Swarm::store() {
  const int total = static_cast<int>(setting_.shards) * setting_.span;
  Dice dice(setting_.seed + 2);
  for (int id = 0; id < total; ++id) {
    BsonWriter out;
    out.append("_id", id).append("k", static_cast<std::int32_t>(dice.between(0, 6)));
    out.append("x", static_cast<double>(dice.between(0, 1000)) / 8);
    out.append("text", std::string(setting_.text_bytes, static_cast<char>('a' + id % 26)));
    const BsonDoc document = std::move(out).finish();
    world_.shard(static_cast<std::size_t>(id / setting_.span)).store("app.docs", document);
    world_.shard(0).store("app.plain", document);
    docs_.push_back(document);
  }
  plain_ = docs_;
}

// --- what a client does

Task<std::optional<BsonDoc>> Swarm::ask(Member& member, SimClient& client, BsonDoc command) {
  const std::string name(command.view().first().name);
  auto calling = client.call(std::move(command));
  auto reply = co_await calling;
  std::string outcome = "lost";
  if (reply) {
    const std::int64_t code = code_of(*reply);
    outcome = is_ok(*reply) ? "ok" : fmt::format("error {}", code);
    ++(is_ok(*reply) ? result_.answered : result_.refused);
    // What a client may hear when connections break, and shards end or forget.
    static const std::set<std::int64_t> allowed = {6, 7, 43, 89, 133, 143, 202, 237};
    if (!is_ok(*reply) && (!setting_.lossy || code == 0 || !allowed.contains(code))) {
      fail(fmt::format("client {}: {} was answered {}", member.index, name, to_json(*reply)));
    }
  } else {
    ++result_.lost;
    if (!setting_.lossy) fail(fmt::format("client {}: {} was not answered", member.index, name));
  }
  world_.log().add(fmt::format("client {} {} {}", member.index, name, outcome));
  if (reply && !is_ok(*reply)) co_return std::nullopt;
  co_return reply;
}

Task<void> Swarm::point_find(Member& member) {
  const std::int64_t id = member.dice.between(-1, static_cast<std::int64_t>(docs_.size()) + 1);
  const std::string command = fmt::format(R"({{"find": "docs", "filter": {{"_id": {}}}, "$db": "app"}})", id);
  auto asking = ask(member, *member.first, json(command));
  auto reply = co_await asking;
  if (!reply) co_return;
  const auto batch = batch_of(*reply);
  const bool exists = id >= 0 && id < static_cast<std::int64_t>(docs_.size());
  if (batch.size() != (exists ? 1u : 0u)) fail(fmt::format("_id {} gave {} documents", id, batch.size()));
  if (exists && !batch.empty() && known("docs", batch.front()) != &docs_[static_cast<std::size_t>(id)]) {
    fail(fmt::format("_id {} gave {}", id, to_json(batch.front())));
  }
}

Query Swarm::draw_query(Dice& dice) {
  Query query;
  query.collection = dice.percent(75) ? "docs" : "plain";
  const auto total = static_cast<std::int64_t>(docs_.size());
  switch (dice.between(0, 3)) {
    case 0: break;
    case 1: query.filter = json(fmt::format(R"({{"k": {}}})", dice.between(0, 7))); break;
    case 2: query.filter = json(fmt::format(R"({{"_id": {{"$gte": {}}}}})", dice.between(0, total))); break;
    default:
      query.filter = json(fmt::format(R"({{"_id": {{"$lt": {}}}, "x": {{"$gt": {}}}}})", dice.between(0, total),
                                      dice.between(0, 100)));
  }
  static const std::vector<std::string> sorts = {"",
                                                 "",
                                                 R"({"_id": 1})",
                                                 R"({"_id": -1})",
                                                 R"({"k": 1, "_id": -1})",
                                                 R"({"k": -1})",
                                                 R"({"x": 1, "k": -1, "_id": 1})"};
  const std::string& sort = dice.one_of(sorts);
  query.sorted = !sort.empty();
  query.total_order = sort.find("_id") != std::string::npos;
  if (query.sorted) query.sort = json(sort);
  if (dice.percent(30)) query.limit = dice.between(1, total + 5);
  if (dice.percent(30)) query.skip = dice.between(0, total / 2 + 1);
  BsonWriter out;
  out.append("find", query.collection).append("filter", query.filter);
  if (query.sorted) out.append("sort", query.sort);
  if (query.limit > 0) out.append("limit", query.limit);
  if (query.skip > 0) out.append("skip", query.skip);
  if (dice.percent(70)) out.append("batchSize", dice.between(0, 30));
  out.append("$db", "app");
  query.command = std::move(out).finish();
  pipeline::FindQuery find;
  find.filter = query.filter;
  find.sort = query.sort;
  query.expected = pipeline::run_find(query.collection == "docs" ? docs_ : plain_, find, budget_).value();
  const auto matching = static_cast<std::int64_t>(query.expected.size());
  std::int64_t most = std::max<std::int64_t>(0, matching - query.skip);
  if (query.limit > 0) most = std::min(most, query.limit);
  query.count = static_cast<std::size_t>(most);
  return query;
}

const BsonDoc* Swarm::known(const std::string& collection, DocView document) const {
  const std::vector<BsonDoc>& all = collection == "docs" ? docs_ : plain_;
  const std::int64_t id = document["_id"].to_int64().value_or(-1);
  if (id < 0 || id >= static_cast<std::int64_t>(all.size())) return nullptr;
  const BsonDoc& stored = all[static_cast<std::size_t>(id)];
  const Bytes a = stored.view().bytes();
  const Bytes b = document.bytes();
  return std::equal(a.begin(), a.end(), b.begin(), b.end()) ? &stored : nullptr;
}

void Swarm::check_documents(const Query& query, const std::vector<BsonDoc>& returned, bool whole) {
  const auto wrong = [&](const std::string& what) {
    fail(fmt::format("{}: {}", to_json(query.command), what));
  };
  if (returned.size() > query.count) wrong(fmt::format("{} documents, not {}", returned.size(), query.count));
  if (whole && returned.size() < query.count) wrong(fmt::format("{} documents, not {}", returned.size(), query.count));
  std::set<const BsonDoc*> seen;
  std::set<std::int64_t> matching;
  for (const BsonDoc& document : query.expected) matching.insert(document.view()["_id"].as_int32());
  for (std::size_t i = 0; i < returned.size() && i < query.count; ++i) {
    const DocView document = returned[i];
    const BsonDoc* stored = known(query.collection, document);
    if (stored == nullptr) return wrong("a document differs from the stored one: " + to_json(document, 300));
    if (!seen.insert(stored).second) return wrong("a document came twice: " + to_json(document, 300));
    if (!matching.contains(document["_id"].as_int32())) return wrong("no match: " + to_json(document, 300));
    if (!query.sorted) continue;
    const DocView in_place = query.expected[static_cast<std::size_t>(query.skip) + i];
    const std::string_view field = query.total_order ? "_id" : "k";
    if (!(in_place[field] == document[field])) {
      return wrong(fmt::format("document {} is {}, not {}", i, to_json(document, 300), to_json(in_place, 300)));
    }
  }
}

// Now and then a client does not read its cursor to the end.
Task<bool> Swarm::leave_scan(Member& member, const Query& query, std::int64_t id) {
  if (!member.dice.percent(8)) co_return false;
  switch (member.dice.between(0, 3)) {
    case 0: co_return true;  // forgets it
    case 1: member.first->close(); co_return true;
    case 2: member.first->reset(); co_return true;
    default: break;
  }
  SimClient& client = member.dice.percent(50) ? *member.first : *member.second;
  const std::string command = fmt::format(
      R"({{"killCursors": "{}", "cursors": [{{"$numberLong": "{}"}}], "$db": "app"}})", query.collection, id);
  auto asking = ask(member, client, json(command));
  auto reply = co_await asking;
  if (reply && !setting_.lossy && reply->view()["cursorsKilled"].as_document().count() != 1) {
    fail("an open cursor was not killed: " + to_json(*reply));
  }
  co_return true;
}

Task<void> Swarm::scan(Member& member) {
  const Query query = draw_query(member.dice);
  auto asking = ask(member, *member.first, query.command);
  auto reply = co_await asking;
  std::vector<BsonDoc> returned;
  bool whole = false;
  while (reply) {
    for (BsonDoc& document : batch_of(*reply)) returned.push_back(std::move(document));
    const std::int64_t id = cursor_id(*reply);
    if (id < 0) fail("a cursor's reply has no id: " + to_json(*reply, 300));
    whole = id == 0;
    if (whole || ending_) break;
    auto leaving = leave_scan(member, query, id);
    const bool left = co_await leaving;
    if (left) break;
    BsonWriter more;
    more.append("getMore", id).append("collection", query.collection);
    if (member.dice.percent(70)) more.append("batchSize", member.dice.between(1, 40));
    more.append("$db", "app");
    SimClient& client = member.dice.percent(70) ? *member.first : *member.second;
    auto asking_more = ask(member, client, std::move(more).finish());
    reply = co_await asking_more;
  }
  check_documents(query, returned, whole);
}

Task<void> Swarm::insert(Member& member) {
  const std::int64_t documents = member.dice.between(1, 6);
  std::vector<std::string> ids;
  BsonWriter out;
  out.append("insert", "log").begin_array("documents");
  for (std::int64_t i = 0; i < documents; ++i) {
    ids.push_back(fmt::format("{}-{}", member.index, member.next_id++));
    BsonWriter document;
    document.append("_id", ids.back()).append("n", i);
    const BsonDoc item = std::move(document).finish();
    out.append_item(item);
    sent_.insert(ids.back());
  }
  out.end().append("ordered", member.dice.percent(50));
  if (setting_.replica_set && member.dice.percent(60)) {
    std::uint8_t uuid[16] = {};
    uuid[0] = static_cast<std::uint8_t>(member.index + 1);
    out.begin_document("lsid").append_binary("id", 4, uuid).end();
    out.append("txnNumber", ++member.txn_number);
  }
  out.append("$db", "app");
  auto asking = ask(member, *member.first, std::move(out).finish());
  auto reply = co_await asking;
  if (!reply) co_return;
  const ValueView errors = reply->view()["writeErrors"];
  if (!errors.exists()) {
    if (reply->view()["n"].to_int64() != documents) fail("an insert's n is wrong: " + to_json(*reply));
    acknowledged_.insert(ids.begin(), ids.end());
    co_return;
  }
  for (const Element& error : errors.as_document()) {
    const std::int64_t code = code_of(error.as_document());
    static const std::set<std::int64_t> allowed = {6, 7, 89, 133, 202};
    if (!setting_.lossy || !allowed.contains(code)) fail("an insert failed: " + to_json(*reply));
  }
}

Task<void> Swarm::count(Member& member) {
  const std::int64_t k = member.dice.between(0, 7);
  auto asking = ask(member, *member.first, json(fmt::format(R"({{"count": "docs", "query": {{"k": {}}}, "$db": "app"}})", k)));
  auto reply = co_await asking;
  if (!reply) co_return;
  const auto expected = std::count_if(docs_.begin(), docs_.end(),
                                      [k](const BsonDoc& each) { return each.view()["k"].as_int32() == k; });
  if (reply->view()["n"].to_int64() != expected) {
    fail(fmt::format("count of k {} is {}, not {}", k, to_json(*reply), expected));
  }
}

Task<void> Swarm::group(Member& member) {
  auto asking = ask(member, *member.first, json(R"({"aggregate": "docs", "pipeline":
    [{"$group": {"_id": "$k", "n": {"$sum": 1}}}], "cursor": {}, "$db": "app"})"));
  auto reply = co_await asking;
  if (!reply) co_return;
  std::map<std::int32_t, std::int64_t> expected, found;
  for (const BsonDoc& each : docs_) ++expected[each.view()["k"].as_int32()];
  for (const BsonDoc& each : batch_of(*reply)) {
    found[static_cast<std::int32_t>(each.view()["_id"].to_int64().value_or(-1))] +=
        each.view()["n"].to_int64().value_or(0);
  }
  if (found != expected) fail("$group: " + to_json(*reply));
}

Task<void> Swarm::pipelined(Member& member) {
  SimClient& client = *member.second;
  int sent = 0;
  for (; sent < 3; ++sent) {
    auto sending = client.send(json(R"({"ping": 1, "$db": "admin"})"));
    const bool whole = co_await sending;
    if (!whole) break;
  }
  for (int i = 0; i < sent && client.connected(); ++i) {
    auto receiving = client.receive();
    const auto reply = co_await receiving;
    if (!reply) break;
    if (!is_ok(*reply)) fail("ping: " + to_json(*reply));
    ++result_.answered;
  }
  if (!setting_.lossy && !client.connected()) fail("pipelined pings were not answered");
  world_.log().add(fmt::format("client {} pings {}", member.index, client.connected()));
}

Task<void> Swarm::something(Member& member) {
  const std::int64_t what = member.dice.between(0, 99);
  if (what < 25) return point_find(member);
  if (what < 65) return scan(member);
  if (what < 80) return insert(member);
  if (what < 87) return count(member);
  if (what < 93) return group(member);
  return pipelined(member);
}

Task<void> Swarm::live(Member* member) {
  Loop& loop = world_.worker(0).loop();
  for (int i = 0; i < setting_.operations && !ending_; ++i) {
    co_await loop.sleep_for(milliseconds(member->dice.between(0, 200)));
    auto doing = something(*member);
    co_await doing;
  }
  member->first->close();
  member->second->close();
  member->done = true;
}

// --- what happens to the shards

Task<void> Swarm::chaos() {
  Dice dice(setting_.seed + 3);
  Loop& loop = world_.worker(0).loop();
  while (!ending_) {
    co_await loop.sleep_for(milliseconds(dice.between(50, 2000)));
    SimShard& shard = world_.shard(static_cast<std::size_t>(dice.between(0, static_cast<std::int64_t>(setting_.shards) - 1)));
    using Fault = SimShard::Fault;
    static const std::vector<Fault> faults = {Fault::not_primary,    Fault::cursor_not_found, Fault::wrong_response_to,
                                              Fault::garbage_length, Fault::cut_after,        Fault::cut_within};
    switch (setting_.lossy ? dice.between(0, 5) : 1) {
      case 0:
        shard.die();
        co_await loop.sleep_for(milliseconds(dice.between(10, 3000)));
        shard.restart();
        break;
      case 1:
        shard.freeze();
        co_await loop.sleep_for(milliseconds(dice.between(10, 3000)));
        shard.thaw();
        break;
      case 2: shard.forget_cursors(); break;
      default:
        shard.cut_at_bytes = static_cast<std::size_t>(dice.between(1, 400));
        shard.misbehave(dice.one_of(faults), "", static_cast<int>(dice.between(1, 3)));
    }
  }
  chaos_done_ = true;
}

// --- the end

void Swarm::check_inserted() {
  std::map<std::string, int> stored;
  for (std::size_t i = 0; i < setting_.shards; ++i) {
    for (const BsonDoc& document : world_.shard(i).stored("app.log")) {
      ++stored[std::string(document.view()["_id"].as_string())];
    }
  }
  for (const auto& [id, times] : stored) {
    if (times != 1) fail(fmt::format("{} was stored {} times", id, times));
    if (!sent_.contains(id)) fail(fmt::format("{} was stored but never sent", id));
  }
  for (const std::string& id : acknowledged_) {
    if (!stored.contains(id)) fail(fmt::format("{} was acknowledged but is not stored", id));
  }
}

void Swarm::check_cursors() {
  for (std::size_t i = 0; i < setting_.shards; ++i) {
    const SimShard::CursorCounts& cursors = world_.shard(i).cursors();
    // Where messages get lost, so do the ids of cursors and the orders to kill them.
    if (!setting_.lossy && cursors.open() != 0) {
      fail(fmt::format("{} of {} cursors of shard{} were left open", cursors.open(), cursors.opened, i));
    }
  }
}

void Swarm::settle() {
  ending_ = true;
  FaultOptions calm;
  calm.seed = setting_.seed;
  world_.set_faults(calm);
  const auto all_done = [this] {
    return chaos_done_ && std::all_of(members_.begin(), members_.end(), [](const auto& each) { return each->done; });
  };
  for (std::size_t i = 0; i < setting_.shards; ++i) world_.shard(i).clear_faults();
  if (!world_.run_until(all_done, seconds(60))) {
    for (const auto& member : members_) {
      if (!member->done) fail(fmt::format("client {} still waits a minute after the last fault", member->index));
    }
  }
}

SwarmResult Swarm::run() {
  result_.seed = setting_.seed;
  result_.setting = describe(setting_);
  Dice dice(setting_.seed + 4);
  for (std::size_t i = 0; i < setting_.clients; ++i) {
    const std::size_t home = i % setting_.workers;
    members_.push_back(std::make_unique<Member>(i, dice.seed(), world_.client(home),
                                                world_.client((home + 1) % setting_.workers)));
  }
  world_.spawn(chaos());
  for (const auto& member : members_) world_.spawn(live(member.get()));
  world_.run_until(
      [this] {
        return std::all_of(members_.begin(), members_.end(), [](const auto& each) { return each->done; });
      },
      minutes(2));
  settle();
  for (const auto& member : members_) {
    for (const SimClient* client : {member->first.get(), member->second.get()}) {
      for (const std::string& violation : client->violations()) fail(violation);
    }
  }
  result_.log_hash = world_.log().hash();
  result_.log_lines = world_.log().lines();
  result_.log_tail = world_.log().tail();
  world_.log().stop();  // cursors expire in the order of their random ids
  world_.run_for(seconds(150));
  for (std::string& line : world_.leftovers()) fail("at the end: " + std::move(line));
  check_inserted();
  check_cursors();
  // A client that still waits is waited for, so that its failure can be told.
  if (!world_.shut_down()) fail("the workers did not stop");
  return std::move(result_);
}

}  // namespace

SwarmResult run_swarm(std::uint64_t seed) {
  Swarm swarm(draw_setting(seed));
  return swarm.run();
}

}  // namespace spillway::test
