#include "tests/sim/cluster_swarm.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "tests/sim/sim_support.h"
#include "tests/sim/swarm_setting.h"

namespace spillway::test {

namespace {

struct ClusterSetting {
  std::uint64_t seed = 0;
  bool lossy = false;  // connections break, and servers step down; otherwise everything is only slow
  SimClusterOptions cluster;
  std::size_t workers = 1, clients = 1;
  int operations = 0;
  FaultOptions faults;
};

constexpr int keys = 200;  // k of rec.r

ClusterSetting draw_cluster_setting(std::uint64_t seed) {
  Dice dice(seed + 100'000);
  ClusterSetting setting;
  setting.seed = seed;
  setting.lossy = seed % 3 != 0;
  static const std::vector<std::int32_t> wires = {wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0};
  const auto release = static_cast<std::size_t>(dice.between(0, 5));
  setting.cluster.wire_version = wires[release];
  setting.cluster.shards = static_cast<std::size_t>(dice.between(2, 3));
  // While it is upgraded, config servers come first; 5.0 is another format of the table.
  if (dice.percent(25) && release != 0 && release != 2) setting.cluster.shard_wire_versions = {wires[release - 1]};
  setting.cluster.members = static_cast<std::size_t>(dice.between(1, 2));
  setting.cluster.config_members = static_cast<std::size_t>(dice.between(1, 3));
  setting.workers = static_cast<std::size_t>(dice.between(1, 2));
  setting.clients = static_cast<std::size_t>(dice.between(2, 5));
  setting.operations = static_cast<int>(dice.between(15, 40));
  setting.faults = FaultOptions::swarm(seed);
  if (setting.faults.write_bytes_max > 0 || setting.faults.read_bytes_max > 0) {
    setting.faults.write_bytes_max = setting.faults.read_bytes_max = 64;
    setting.faults.reset_permille = std::min(setting.faults.reset_permille, 1u);
    setting.faults.half_close_permille = std::min(setting.faults.half_close_permille, 1u);
  }
  if (!setting.lossy) {
    setting.faults.refuse_percent = 0;
    setting.faults.reset_permille = 0;
    setting.faults.half_close_permille = 0;
  }
  return setting;
}

std::string describe(const ClusterSetting& setting) {
  std::string wires = std::to_string(setting.cluster.wire_version);
  for (const std::int32_t wire : setting.cluster.shard_wire_versions) wires += fmt::format(" ({})", wire);
  return fmt::format("{}, wire version {}, {} shards of {}, {} config servers, {} workers, {} clients x {} operations",
                     setting.lossy ? "lossy" : "slow", wires, setting.cluster.shards, setting.cluster.members,
                     setting.cluster.config_members, setting.workers, setting.clients, setting.operations);
}

class ClusterSwarm {
 public:
  explicit ClusterSwarm(const ClusterSetting& setting);
  ClusterSwarmResult run();

 private:
  enum class State : std::uint8_t {
    sent,    // it may be stored
    there,
    doomed,  // it may be deleted
    gone,    // deleted, or never stored
  };
  struct Document {
    std::string collection;
    int k = 0;
    State state = State::sent;
    std::int64_t counted = 0;  // in `n`: by acknowledged writes
    std::int64_t excess = 0;   // by those that may have been executed
  };
  // Of a write with {multi: true}, which counts documents in a field of its own.
  struct Multi {
    std::string collection;
    std::set<int> must;         // documents that it has counted for certain, unless chunks moved meanwhile
    std::int64_t times_max = 1;
  };
  struct Member {
    std::size_t index = 0;
    Dice dice;
    std::unique_ptr<SimClient> client;
    std::int64_t txn_number = 0;
    int asked = 0;
    bool done = false;
  };
  struct Answer {
    std::optional<BsonDoc> reply;
    bool ok = false;         // and no write error
    bool unwritten = false;  // an error that says that nothing was executed
  };

  Task<Answer> ask(Member& member, BsonDoc command, bool retries = false);
  Task<std::optional<BsonDoc>> ask_once(Member& member, const BsonDoc& command);
  static bool drivers_retry(DocView reply);
  static BsonDoc with_session(Member& member, const BsonDoc& command, std::string_view more = "");
  std::string draw_collection(Member& member) {
    if (member.dice.percent(15)) return "d";
    return member.dice.percent(75) ? "r" : "u";
  }
  std::optional<int> draw_document(Member& member);

  Task<void> live(Member* member);
  Task<void> something(Member& member);
  Task<void> insert(Member& member);
  Task<void> count_up(Member& member);
  Task<void> count_up_all(Member& member);
  Task<void> remove(Member& member);
  Task<void> read_by_key(Member& member);
  Task<void> read_all(Member& member);
  Task<void> transact(Member& member);
  Task<void> drop(Member& member);
  Task<void> churn();
  Task<void> trouble();
  void check_read(const std::string& collection, const std::map<int, State>& before,
                  const std::map<int, State>& after, const std::vector<BsonDoc>& found, const std::string& what);
  void check_end();
  std::map<int, State> states(const std::string& collection) const;
  int tries_of(const std::string& asked) const;  // on all servers
  void fail(std::string what) { result_.failures.push_back(std::move(what)); }

  ClusterSetting setting_;
  SimLog log_;
  SimCluster cluster_;
  std::optional<SimWorld> world_;
  ClusterSwarmResult result_;
  std::vector<std::unique_ptr<Member>> members_;
  std::map<int, Document> documents_;  // by _id
  std::map<std::string, Multi> multis_;
  int next_id_ = 0, next_multi_ = 0;
  // By what a client asked, and the server: how often it was asked.
  std::map<std::pair<std::string, std::string>, int> tries_;
  std::set<std::string> reads_;  // of what clients asked
  int drops_ = 0;  // of rec.d, begun and ended
  bool ending_ = false;
  int running_ = 0;  // churn and trouble
};

ClusterSwarm::ClusterSwarm(const ClusterSetting& setting) : setting_(setting), cluster_(setting.cluster, log_) {
  cluster_.create_database("rec", 0);
  std::vector<BsonDoc> points;
  for (int k = keys / 5; k < keys; k += keys / 5) points.push_back(json(fmt::format(R"({{"k": {}}})", k)));
  cluster_.shard_collection("rec.r", json(R"({"k": 1})"), points);
  Dice dice(setting.seed + 1);
  for (; next_id_ < 40; ++next_id_) {
    const std::string collection = next_id_ % 4 == 0 ? "u" : "r";
    const int k = static_cast<int>(dice.between(0, keys - 1));
    cluster_.store("rec." + collection, json(fmt::format(R"({{"_id": {}, "k": {}}})", next_id_, k)));
    documents_[next_id_] = {collection, k, State::there};
  }
  for (SimShard* const server : cluster_.servers()) {
    server->observe = [this, server](DocView command) {
      const ValueView comment = command["comment"];
      if (!comment.is_string() || command.first().name == "getMore") return;
      ++tries_[{std::string(comment.as_string()), server->options().host}];
    };
    server->revise = [this](std::string_view command, BsonDoc reply) {
      const bool drops = command == "_configsvrDropCollection" || command == "_shardsvrDropCollection";
      if (!drops || code_of(reply) != 59) return reply;
      cluster_.drop("rec.d");
      return json(R"({"ok": 1})");
    };
  }
  SimWorldOptions options;
  options.cluster = &cluster_;
  options.config_db = true;
  options.workers = setting.workers;
  options.faults = setting.faults;
  options.order_seed = setting.seed + 5;
  world_.emplace(std::move(options));
}

// --- what clients do

bool ClusterSwarm::drivers_retry(DocView reply) {
  static const std::set<std::int64_t> codes = {6,   7,   89,    91,    133,   189,   202,
                                              262, 9001, 10107, 11600, 11602, 13435, 13436};
  return codes.contains(code_of(reply));
}

Task<std::optional<BsonDoc>> ClusterSwarm::ask_once(Member& member, const BsonDoc& command) {
  BsonWriter out;
  out.append_elements(command).append("comment", fmt::format("{}-{}", member.index, member.asked++));
  out.append("$db", "rec");
  const std::string name(command.view().first().name);
  if (name == "find") reads_.insert(fmt::format("{}-{}", member.index, member.asked - 1));
  std::optional<BsonDoc> reply;
  if (setting_.lossy && member.dice.percent(2)) {  // it leaves while it waits
    auto sending = member.client->send(std::move(out).finish());
    co_await sending;
    co_await world_->worker(0).loop().sleep_for(milliseconds(member.dice.between(0, 30)));
    member.client->reset();
  } else {
    auto calling = member.client->call(std::move(out).finish());
    reply = co_await calling;
  }
  std::string outcome = "lost";
  if (reply) {
    outcome = is_ok(*reply) ? "ok" : fmt::format("error {}", code_of(*reply));
    is_ok(*reply) ? ++result_.answered : ++result_.refused[code_of(*reply)];
  } else {
    ++result_.lost;
    if (!setting_.lossy) fail(fmt::format("client {}: {} was not answered", member.index, name));
  }
  log_.add(fmt::format("client {} {} {}", member.index, name, outcome));
  co_return reply;
}

// `retries`: as a driver repeats a write that can be retried, but more patiently.
Task<ClusterSwarm::Answer> ClusterSwarm::ask(Member& member, BsonDoc command, bool retries) {
  constexpr int attempts_max = 12;
  for (int attempt = 1;; ++attempt) {
    auto asking = ask_once(member, command);
    auto reply = co_await asking;
    Answer answer;
    answer.reply = std::move(reply);
    std::int64_t code = 0;
    if (answer.reply) {
      const ValueView error = item_of(*answer.reply, "writeErrors", 0);
      code = error.is_document() ? code_of(error.as_document()) : code_of(*answer.reply);
      answer.ok = is_ok(*answer.reply) && code == 0;
      answer.unwritten = code == 82 && attempt == 1;
      // Nothing but losses, or a table that has changed at each of ten tries, keeps a command from being executed.
      static const std::set<std::int64_t> of_losses = {6, 7, 43, 82, 89, 133, 202, 279};
      static const std::set<std::int64_t> of_changes = {249, 343, 13388};
      const bool changed =
          of_changes.contains(code) && tries_of(fmt::format("{}-{}", member.index, member.asked - 1)) >= 10;
      if (code != 0 && !changed && !(setting_.lossy && of_losses.contains(code))) {
        const bool in_transaction = command.view()["autocommit"].exists();
        static const std::set<std::int64_t> of_transactions = {249, 251, 263, 272, 343, 13388};
        if (!in_transaction || !of_transactions.contains(code)) {
          fail(fmt::format("client {}: {} was answered {}", member.index, to_json(command), to_json(*answer.reply)));
        }
      }
    }
    const bool again = !answer.reply || (code != 0 && drivers_retry(*answer.reply)) ||
                       (code != 0 && is_ok(*answer.reply) &&
                        drivers_retry(item_of(*answer.reply, "writeErrors", 0).as_document()));
    if (!retries || !again || attempt == attempts_max) co_return answer;
    co_await world_->worker(0).loop().sleep_for(milliseconds(500));
  }
}

BsonDoc ClusterSwarm::with_session(Member& member, const BsonDoc& command, std::string_view more) {
  std::uint8_t uuid[16] = {};
  uuid[0] = static_cast<std::uint8_t>(member.index + 1);
  BsonWriter out;
  out.append_elements(command);
  out.begin_document("lsid").append_binary("id", 4, uuid).end();
  out.append("txnNumber", member.txn_number);
  if (!more.empty()) {
    const BsonDoc fields = json(more);
    out.append_elements(fields);
  }
  return std::move(out).finish();
}

std::optional<int> ClusterSwarm::draw_document(Member& member) {
  std::vector<int> all;
  for (const auto& [id, document] : documents_) {
    if (document.state == State::there) all.push_back(id);
  }
  if (all.empty()) return std::nullopt;
  return member.dice.one_of(all);
}

int ClusterSwarm::tries_of(const std::string& asked) const {
  int all = 0;
  for (const auto& [at, times] : tries_) all += at.first == asked ? times : 0;
  return all;
}

Task<void> ClusterSwarm::insert(Member& member) {
  const std::string collection = draw_collection(member);
  const auto count = static_cast<std::size_t>(member.dice.between(1, 5));
  std::vector<int> ids;
  BsonWriter out;
  out.append("insert", collection).begin_array("documents");
  for (std::size_t i = 0; i < count; ++i) {
    const int id = next_id_++;
    const int k = static_cast<int>(member.dice.between(0, keys - 1));
    ids.push_back(id);
    documents_[id] = {collection, k};
    out.append_item(json(fmt::format(R"({{"_id": {}, "k": {}}})", id, k)).view());
  }
  out.end().append("ordered", member.dice.percent(50));
  BsonDoc command = std::move(out).finish();
  const bool retries = member.dice.percent(60);
  if (retries) {
    ++member.txn_number;
    command = with_session(member, command);
  }
  const int drops = drops_;
  auto asking = ask(member, std::move(command), retries);
  const Answer answer = co_await asking;
  if (answer.ok && answer.reply->view()["n"].to_int64() != static_cast<std::int64_t>(count)) {
    fail("an insert's n is wrong: " + to_json(*answer.reply));
  }
  for (const int id : ids) {
    // What is inserted during a drop may be dropped.
    const bool dropped = collection == "d" && (drops % 2 != 0 || drops != drops_);
    if (answer.ok) documents_[id].state = dropped ? State::doomed : State::there;
  }
}

Task<void> ClusterSwarm::count_up(Member& member) {
  const auto first = draw_document(member);
  if (!first) co_return;
  const std::string collection = documents_[*first].collection;
  const bool modifies = member.dice.percent(30);
  std::set<int> ids = {*first};
  for (std::int64_t more = modifies ? 0 : member.dice.between(0, 4); more > 0; --more) {
    const int id = *draw_document(member);
    if (documents_[id].collection == collection) ids.insert(id);
  }
  const auto filter_of = [&](int id) {
    if (!modifies && member.dice.percent(20)) return fmt::format(R"({{"_id": {}}})", id);
    return fmt::format(R"({{"_id": {}, "k": {}}})", id, documents_[id].k);
  };
  BsonWriter out;
  if (modifies) {
    out.append("findAndModify", collection).append("query", json(filter_of(*first)));
    out.append("update", json(R"({"$inc": {"n": 1}})"));
  } else {
    out.append("update", collection).begin_array("updates");
    for (const int id : ids) {
      out.append_item(json(fmt::format(R"({{"q": {}, "u": {{"$inc": {{"n": 1}}}}}})", filter_of(id))).view());
    }
    out.end().append("ordered", member.dice.percent(50));
  }
  BsonDoc command = std::move(out).finish();
  const bool retries = member.dice.percent(60);
  if (retries) {
    ++member.txn_number;
    command = with_session(member, command);
  }
  for (const int id : ids) ++documents_[id].excess;
  auto asking = ask(member, std::move(command), retries);
  const Answer answer = co_await asking;
  if (answer.unwritten && ids.size() == 1) --documents_[*first].excess;
  if (!answer.ok) co_return;
  const std::int64_t n = modifies ? (answer.reply->view()["value"].is_document() ? 1 : 0)
                                  : answer.reply->view()["n"].to_int64().value_or(-1);
  // Others may delete what this counts.
  const auto is_there = [&](int id) { return documents_[id].state == State::there; };
  const bool all_there = std::all_of(ids.begin(), ids.end(), is_there);
  if (n > static_cast<std::int64_t>(ids.size()) || (all_there && n != static_cast<std::int64_t>(ids.size()))) {
    fail(fmt::format("client {}: {} of {} documents are found by a write", member.index, n, ids.size()));
  }
  if (n != static_cast<std::int64_t>(ids.size())) co_return;
  for (const int id : ids) {
    --documents_[id].excess;
    ++documents_[id].counted;
  }
}

Task<void> ClusterSwarm::count_up_all(Member& member) {
  const std::string collection = draw_collection(member);
  const std::string field = fmt::format("m{}", next_multi_++);
  const auto before = states(collection);
  const std::uint64_t moves = result_.moves;
  multis_[field] = {"rec." + collection, {}, 1'000'000};
  BsonWriter out;
  out.append("update", collection).begin_array("updates");
  out.append_item(
      json(fmt::format(R"({{"q": {{}}, "u": {{"$inc": {{"{}": 1}}}}, "multi": true}})", field)).view()).end();
  auto asking = ask(member, std::move(out).finish());
  const Answer answer = co_await asking;
  Multi& multi = multis_[field];
  if (!answer.reply) co_return;  // it may still run
  const auto after = states(collection);
  // A document that moves meanwhile may be met twice or never, as with a mongos.
  multi.times_max = 1 + static_cast<std::int64_t>(result_.moves - moves);
  if (!answer.ok || result_.moves != moves) co_return;
  for (const auto& [id, state] : before) {
    if (state == State::there && after.at(id) == State::there) multi.must.insert(id);
  }
}

Task<void> ClusterSwarm::remove(Member& member) {
  const auto id = draw_document(member);
  if (!id) co_return;
  Document& document = documents_[*id];
  document.state = State::doomed;
  const int drops = drops_;
  BsonWriter out;
  out.append("delete", document.collection).begin_array("deletes");
  out.append_item(json(fmt::format(R"({{"q": {{"_id": {}, "k": {}}}, "limit": {}}})", *id, document.k,
                                   member.dice.between(0, 1))).view()).end();
  auto asking = ask(member, std::move(out).finish());
  const Answer answer = co_await asking;
  if (!answer.ok) co_return;
  const bool dropped = document.collection == "d" && drops != drops_;
  if (answer.reply->view()["n"].to_int64().value_or(0) < 1 && !dropped) {
    fail(fmt::format("client {}: {} is not found by a delete: {}", member.index, *id, to_json(*answer.reply)));
  }
  document.state = State::gone;
}

std::map<int, ClusterSwarm::State> ClusterSwarm::states(const std::string& collection) const {
  std::map<int, State> all;
  for (const auto& [id, document] : documents_) {
    if (document.collection == collection) all[id] = document.state;
  }
  return all;
}

// `before` and `after` the read: what was there all the time must be there, what was gone before must not be.
void ClusterSwarm::check_read(const std::string& collection, const std::map<int, State>& before,
                              const std::map<int, State>& after, const std::vector<BsonDoc>& found,
                              const std::string& what) {
  std::set<int> seen;
  for (const BsonDoc& each : found) {
    const int id = static_cast<int>(each.view()["_id"].to_int64().value_or(-1));
    if (!seen.insert(id).second) fail(fmt::format("{} saw {} twice", what, id));
    const auto at = documents_.find(id);
    if (at == documents_.end() || at->second.collection != collection) {
      fail(fmt::format("{} saw {}", what, to_json(each)));
      continue;
    }
    const auto known = before.find(id);
    if (known != before.end() && known->second == State::gone) fail(fmt::format("{} saw {}, which is gone", what, id));
  }
  for (const auto& [id, state] : before) {
    if (state == State::there && after.at(id) == State::there && !seen.contains(id)) {
      fail(fmt::format("{} did not see {}", what, id));
    }
  }
}

Task<void> ClusterSwarm::read_by_key(Member& member) {
  const auto id = draw_document(member);
  if (!id) co_return;
  const Document& document = documents_[*id];
  const std::int64_t counted = document.counted;
  auto asking = ask(member, json(fmt::format(R"({{"find": "{}", "filter": {{"k": {}, "_id": {}}}}})",
                                             document.collection, document.k, *id)));
  const Answer answer = co_await asking;
  if (!answer.ok) co_return;
  const auto batch = batch_of(*answer.reply);
  if (batch.size() > 1) fail(fmt::format("{} was found {} times", *id, batch.size()));
  if (batch.empty()) {
    if (document.state == State::there) fail(fmt::format("{} was not found", *id));
    co_return;
  }
  const std::int64_t n = batch[0].view()["n"].to_int64().value_or(0);
  if (n < counted || n > document.counted + document.excess) {
    fail(fmt::format("n of {} was read as {}, of {} and up to {}", *id, n, counted,
                     document.counted + document.excess));
  }
}

Task<void> ClusterSwarm::read_all(Member& member) {
  const std::string collection = draw_collection(member);
  const bool sorted = member.dice.percent(60), descends = member.dice.percent(50);
  const int from = static_cast<int>(member.dice.between(0, keys));
  const bool narrows = member.dice.percent(30);
  BsonWriter out;
  out.append("find", collection);
  if (narrows) out.append("filter", json(fmt::format(R"({{"k": {{"$gte": {}}}}})", from)));
  if (sorted) out.append("sort", json(descends ? R"({"k": -1, "_id": -1})" : R"({"k": 1, "_id": 1})"));
  out.append("batchSize", static_cast<std::int32_t>(member.dice.between(2, 30)));
  auto before = states(collection);
  auto asking = ask(member, std::move(out).finish());
  Answer answer = co_await asking;
  if (!answer.ok) co_return;
  std::vector<BsonDoc> found = batch_of(*answer.reply);
  for (std::int64_t id = cursor_id(*answer.reply); id != 0;) {
    co_await world_->worker(0).loop().sleep_for(milliseconds(member.dice.between(0, 40)));
    auto reading = ask(member, json(fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "{}"}})", id,
                                                collection)));
    answer = co_await reading;
    if (!answer.ok) co_return;
    for (BsonDoc& each : batch_of(*answer.reply)) found.push_back(std::move(each));
    id = cursor_id(*answer.reply);
  }
  auto after = states(collection);
  const auto is_out = [&](const auto& entry) { return narrows && documents_[entry.first].k < from; };
  std::erase_if(before, is_out);
  check_read(collection, before, after, found, fmt::format("client {}'s read", member.index));
  if (!sorted) co_return;
  const auto place = [&](const BsonDoc& each) {
    const std::int64_t sign = descends ? -1 : 1;
    return std::pair(sign * each.view()["k"].to_int64().value_or(0), sign * each.view()["_id"].to_int64().value_or(0));
  };
  for (std::size_t i = 1; i < found.size(); ++i) {
    if (place(found[i - 1]) > place(found[i])) fail(fmt::format("client {}'s read is out of order", member.index));
  }
}

// Two documents of one chunk, and a count: all or nothing.
Task<void> ClusterSwarm::transact(Member& member) {
  const int k = static_cast<int>(member.dice.between(0, keys - 1));
  ++member.txn_number;
  std::vector<int> ids;
  bool ok = true;
  for (int i = 0; i < 2 && ok; ++i) {
    ids.push_back(next_id_++);
    documents_[ids.back()] = {"r", k};
    BsonWriter out;
    out.append("insert", "r").begin_array("documents");
    out.append_item(json(fmt::format(R"({{"_id": {}, "k": {}}})", ids.back(), k)).view()).end();
    const std::string_view more = i == 0 ? R"({"autocommit": false, "startTransaction": true})"
                                         : R"({"autocommit": false})";
    auto asking = ask(member, with_session(member, std::move(out).finish(), more));
    const Answer answer = co_await asking;
    ok = answer.ok;
  }
  const bool commits = ok && member.dice.percent(80);
  BsonWriter out;
  out.append(commits ? "commitTransaction" : "abortTransaction", 1);
  const BsonDoc end = with_session(member, std::move(out).finish(), R"({"autocommit": false})");
  std::optional<BsonDoc> reply;
  for (int attempt = 0; attempt < 12; ++attempt) {
    BsonWriter on_admin;
    on_admin.append_elements(end).append("$db", "admin");
    auto calling = member.client->call(std::move(on_admin).finish());
    reply = co_await calling;
    log_.add(fmt::format("client {} ends a transaction {}", member.index, reply ? code_of(*reply) : -1));
    if (!commits || (reply && !drivers_retry(*reply))) break;
    co_await world_->worker(0).loop().sleep_for(milliseconds(500));
  }
  for (const int id : ids) {
    if (!commits) documents_[id].state = State::gone;
    if (commits && reply && is_ok(*reply)) documents_[id].state = State::there;
    // A commit that met a step-down may have come before.
    if (commits && reply && code_of(*reply) == 251 && !setting_.lossy) documents_[id].state = State::gone;
  }
  if (!commits || (reply && (is_ok(*reply) || code_of(*reply) == 251)) || setting_.lossy) co_return;
  fail("a commit was answered " + (reply ? to_json(*reply) : "not at all"));
}

// One at a time. Without an answer it may come later: then the content of rec.d is unknown.
Task<void> ClusterSwarm::drop(Member& member) {
  if (drops_ % 2 != 0) co_return;
  ++drops_;
  std::vector<int> known;
  for (auto& [id, document] : documents_) {
    if (document.collection != "d" || document.state != State::there) continue;
    document.state = State::doomed;
    known.push_back(id);
  }
  auto asking = ask(member, json(R"({"drop": "d"})"));
  const Answer answer = co_await asking;
  if (!answer.ok) co_return;
  for (const int id : known) documents_[id].state = State::gone;
  ++drops_;
}

Task<void> ClusterSwarm::something(Member& member) {
  const std::int64_t what = member.dice.between(0, 99);
  if (what < 22) return insert(member);
  if (what < 45) return count_up(member);
  if (what < 53) return count_up_all(member);
  if (what < 60) return remove(member);
  if (what < 75) return read_by_key(member);
  if (what < 90) return read_all(member);
  if (what < 92) return drop(member);
  return transact(member);
}

Task<void> ClusterSwarm::live(Member* member) {
  Loop& loop = world_->worker(0).loop();
  for (int i = 0; i < setting_.operations && !ending_; ++i) {
    co_await loop.sleep_for(milliseconds(member->dice.between(0, 150)));
    auto doing = something(*member);
    co_await doing;
  }
  member->client->close();
  member->done = true;
}

// --- what happens to the cluster

Task<void> ClusterSwarm::churn() {
  std::mt19937_64 random(setting_.seed + 11);
  Loop& loop = world_->worker(0).loop();
  while (!ending_) {
    co_await loop.sleep_for(milliseconds(5 + random() % 200));
    ++result_.moves;
    if (random() % 4 != 0) {
      cluster_.churn(random);
      continue;
    }
    const BsonDoc key = json(fmt::format(R"({{"k": {}}})", random() % keys));
    auto moving = cluster_.move_slowly(loop, "rec.r", key, random() % cluster_.shard_count(),
                                       milliseconds(random() % 300));
    co_await moving;
    ++result_.moves;
  }
  --running_;
}

Task<void> ClusterSwarm::trouble() {
  Dice dice(setting_.seed + 12);
  Loop& loop = world_->worker(0).loop();
  while (!ending_) {
    co_await loop.sleep_for(milliseconds(dice.between(20, 1200)));
    const auto draw = [&dice](std::size_t of) {
      return static_cast<std::size_t>(dice.between(0, static_cast<std::int64_t>(of) - 1));
    };
    const std::size_t index = draw(setting_.cluster.shards);
    const std::size_t of_config = draw(setting_.cluster.config_members);
    const std::size_t member = draw(setting_.cluster.members);
    SimShard& shard = cluster_.shard(index, member);
    SimShard& config = cluster_.config_server(of_config);
    using Fault = SimShard::Fault;
    static const std::vector<Fault> faults = {Fault::not_primary, Fault::cut_after, Fault::cut_within};
    switch (setting_.lossy ? dice.between(0, 9) : dice.between(0, 2)) {
      case 0:
        cluster_.config_role(of_config).lag();
        co_await loop.sleep_for(milliseconds(dice.between(10, 2000)));
        cluster_.config_role(of_config).catch_up();
        break;
      case 1:
        cluster_.role(index).stay_behind(1);
        break;
      case 2:
        cluster_.role(index).hold_locks(1);
        break;
      case 3:
        cluster_.elect(index, member);
        break;
      case 4:
        cluster_.config_set().elect(config);
        break;
      case 5:
        config.step_down_now(milliseconds(dice.between(10, 2000)));
        break;
      case 6: {
        static const std::vector<std::int32_t> codes = {11602, 189, 10107, 91};
        shard.step_down(static_cast<std::size_t>(dice.between(0, 4)), dice.one_of(codes),
                        milliseconds(dice.between(10, 2000)));
        break;
      }
      case 7:
        config.die();
        co_await loop.sleep_for(milliseconds(dice.between(10, 2000)));
        config.restart();
        break;
      case 8:
        shard.die();
        co_await loop.sleep_for(milliseconds(dice.between(10, 2000)));
        shard.restart();
        break;
      default:
        shard.cut_at_bytes = static_cast<std::size_t>(dice.between(1, 400));
        shard.misbehave(dice.one_of(faults), "", static_cast<int>(dice.between(1, 2)));
    }
  }
  --running_;
}

// --- the end

void ClusterSwarm::check_end() {
  std::map<int, int> stored;
  std::map<int, BsonDoc> content;
  for (const char* const collection : {"r", "u", "d"}) {
    for (const BsonDoc& each : cluster_.owned(std::string("rec.") + collection)) {
      const int id = static_cast<int>(each.view()["_id"].to_int64().value_or(-1));
      ++stored[id];
      content.insert_or_assign(id, each);
      const auto at = documents_.find(id);
      if (at == documents_.end() || at->second.collection != collection) fail("a stranger is stored: " + to_json(each));
    }
  }
  for (const auto& [id, document] : documents_) {
    const int times = stored[id];
    if (times > 1) fail(fmt::format("{} is stored {} times", id, times));
    if (document.state == State::there && times == 0) fail(fmt::format("{} is lost", id));
    if (document.state == State::gone && times != 0) fail(fmt::format("{} is stored, and should be gone", id));
    if (times == 0) continue;
    const std::int64_t n = content[id].view()["n"].to_int64().value_or(0);
    if (n < document.counted || n > document.counted + document.excess) {
      fail(fmt::format("{} was counted up {} times, not {} and up to {} more", id, n, document.counted,
                       document.excess));
    }
    for (const auto& [field, multi] : multis_) {
      if (multi.collection != "rec." + document.collection) continue;
      const std::int64_t m = content[id].view()[field].to_int64().value_or(0);
      const bool must = multi.must.contains(id);
      if (m > multi.times_max || (must && m != 1)) {
        fail(fmt::format("{} of {} is {}, and {} {}", field, id, m, must ? "must be" : "may be up to",
                         must ? 1 : multi.times_max));
      }
    }
  }
  // A write goes on for as long as the table changes. What gets lost is sent up to three times.
  const int reads_max = setting_.lossy ? 30 : 10;
  constexpr int writes_max = 100;
  for (const auto& [asked, times] : tries_) {
    if (times <= (reads_.contains(asked.first) ? reads_max : writes_max)) continue;
    fail(fmt::format("{} was asked {} times for {}", asked.second, times, asked.first));
  }
}

ClusterSwarmResult ClusterSwarm::run() {
  result_.setting = describe(setting_);
  Dice dice(setting_.seed + 4);
  for (std::size_t i = 0; i < setting_.clients; ++i) {
    members_.push_back(std::make_unique<Member>(Member{i, Dice(dice.seed()), world_->client(i % setting_.workers)}));
  }
  running_ = 2;
  world_->spawn(churn());
  world_->spawn(trouble());
  for (const auto& member : members_) world_->spawn(live(member.get()));
  const auto all_done = [this] {
    return std::all_of(members_.begin(), members_.end(), [](const auto& each) { return each->done; });
  };
  world_->run_until(all_done, minutes(5));
  ending_ = true;
  FaultOptions calm;
  calm.seed = setting_.seed;
  world_->set_faults(calm);
  for (SimShard* const server : cluster_.servers()) server->clear_faults();
  if (!world_->run_until([&] { return all_done() && running_ == 0; }, minutes(3))) {
    fail("a client still waits three minutes after the last fault");
  }
  for (const auto& member : members_) {
    for (const std::string& violation : member->client->violations()) fail(violation);
  }
  result_.log_hash = log_.hash();
  result_.log_lines = log_.lines();
  result_.log_tail = log_.tail();
  log_.stop();
  world_->run_for(seconds(150));
  world_->run_until([this] { return world_->leftovers().empty(); }, seconds(10));  // the config servers are told of us
  for (std::string& line : world_->leftovers()) fail("at the end: " + std::move(line));
  check_end();
  for (std::size_t i = 0; i < cluster_.shard_count(); ++i) {
    for (std::size_t member = 0; member < setting_.cluster.members; ++member) {
      result_.stale += cluster_.role(i, member).stale();
    }
  }
  if (!world_->shut_down()) fail("the workers did not stop");
  return std::move(result_);
}

}  // namespace

ClusterSwarmResult run_cluster_swarm(std::uint64_t seed) {
  ClusterSwarm swarm(draw_cluster_setting(seed));
  return swarm.run();
}

}  // namespace spillway::test
