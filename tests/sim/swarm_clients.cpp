// What the clients of a run do, and what they check at once.
#include <algorithm>
#include <map>
#include <set>

#include "tests/sim/swarm_run.h"
#include "tests/support/run_query.h"

namespace spillway::test {

bool Swarm::may_be_refused(DocView reply, const std::set<std::int64_t>& may_meet) const {
  const std::int64_t code = code_of(reply);
  // What a client may hear when connections break (its own by half: 279), and shards end or forget.
  static const std::set<std::int64_t> of_losses = {6, 7, 43, 89, 133, 143, 202, 237, 279};
  if (setting_.lossy && of_losses.contains(code)) return true;
  if (setting_.memory_limit_bytes != 0 && code == 462) return true;
  return may_meet.contains(code);
}

Task<std::optional<BsonDoc>> Swarm::ask(Member& member, SimClient& client, BsonDoc command,
                                        std::set<std::int64_t> may_meet) {
  const std::string name(command.view().first().name);
  auto calling = client.call(std::move(command));
  auto reply = co_await calling;
  std::string outcome = "lost";
  if (reply) {
    outcome = is_ok(*reply) ? "ok" : fmt::format("error {}", code_of(*reply));
    ++(is_ok(*reply) ? result_.answered : result_.refused);
    if (!is_ok(*reply) && !may_be_refused(*reply, may_meet)) {
      fail(fmt::format("client {}: {} was answered {}", member.index, name, to_json(*reply)));
    }
  } else {
    ++result_.lost;
    if (!setting_.lossy) fail(fmt::format("client {}: {} was not answered", member.index, name));
  }
  world_.log().add(fmt::format("client {} {} {}", member.index, name, outcome));
  co_return reply;
}

Task<void> Swarm::point_find(Member& member) {
  const std::int64_t id = member.dice.between(-1, static_cast<std::int64_t>(docs_.size()) + 1);
  const std::string command =
      fmt::format(R"({{"find": "docs", "filter": {{"_id": {}}}, "$db": "app"}})", id);
  auto asking = ask(member, *member.first, json(command));
  auto reply = co_await asking;
  if (!reply || !is_ok(*reply)) co_return;
  const auto batch = batch_of(*reply);
  const bool exists = id >= 0 && id < static_cast<std::int64_t>(docs_.size());
  if (batch.size() != (exists ? 1u : 0u))
    fail(fmt::format("_id {} gave {} documents", id, batch.size()));
  if (exists && !batch.empty() &&
      known("docs", batch.front()) != &docs_[static_cast<std::size_t>(id)]) {
    fail(fmt::format("_id {} gave {}", id, to_json(batch.front())));
  }
}

Query Swarm::draw_query(Dice& dice) {
  Query query;
  query.collection = dice.percent(75) ? "docs" : "plain";
  const auto total = static_cast<std::int64_t>(docs_.size());
  switch (dice.between(0, 3)) {
    case 0:
      break;
    case 1:
      query.filter = json(fmt::format(R"({{"k": {}}})", dice.between(0, 7)));
      break;
    case 2:
      query.filter = json(fmt::format(R"({{"_id": {{"$gte": {}}}}})", dice.between(0, total)));
      break;
    default:
      query.filter = json(fmt::format(R"({{"_id": {{"$lt": {}}}, "x": {{"$gt": {}}}}})",
                                      dice.between(0, total), dice.between(0, 100)));
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
  query.expected =
      pipeline::run_find(query.collection == "docs" ? docs_ : plain_, find, budget_).value();
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

void Swarm::check_documents(const Query& query, const std::vector<BsonDoc>& returned, bool whole,
                            bool in_order) {
  const auto wrong = [&](const std::string& what) {
    fail(fmt::format("{}: {}", to_json(query.command), what));
  };
  if (returned.size() > query.count)
    wrong(fmt::format("{} documents, not {}", returned.size(), query.count));
  if (whole && returned.size() < query.count)
    wrong(fmt::format("{} documents, not {}", returned.size(), query.count));
  std::set<const BsonDoc*> seen;
  std::set<std::int64_t> matching;
  for (const BsonDoc& document : query.expected) matching.insert(document.view()["_id"].as_int32());
  for (std::size_t i = 0; i < returned.size() && i < query.count; ++i) {
    const DocView document = returned[i];
    const BsonDoc* stored = known(query.collection, document);
    if (stored == nullptr)
      return wrong("a document differs from the stored one: " + to_json(document, 300));
    if (!seen.insert(stored).second)
      return wrong("a document came twice: " + to_json(document, 300));
    if (!matching.contains(document["_id"].as_int32()))
      return wrong("no match: " + to_json(document, 300));
    if (!query.sorted || !in_order) continue;
    const DocView in_place = query.expected[static_cast<std::size_t>(query.skip) + i];
    const std::string_view field = query.total_order ? "_id" : "k";
    if (!(in_place[field] == document[field])) {
      return wrong(fmt::format("document {} is {}, not {}", i, to_json(document, 300),
                               to_json(in_place, 300)));
    }
  }
}

// Now and then a client does not read its cursor to the end.
Task<bool> Swarm::leave_scan(Member& member, const Query& query, std::int64_t id) {
  if (!member.dice.percent(8)) co_return false;
  switch (member.dice.between(0, 3)) {
    case 0:
      co_return true;  // forgets it
    case 1:
      member.first->close();
      co_return true;
    case 2:
      member.first->reset();
      co_return true;
    default:
      break;
  }
  SimClient& client = member.dice.percent(50) ? *member.first : *member.second;
  const std::string command =
      fmt::format(R"({{"killCursors": "{}", "cursors": [{{"$numberLong": "{}"}}], "$db": "app"}})",
                  query.collection, id);
  auto asking = ask(member, client, json(command));
  auto reply = co_await asking;
  if (reply && is_ok(*reply) && !setting_.lossy && reply->view()["cursorsKilled"].as_document().count() != 1) {
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
  while (reply && is_ok(*reply)) {
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

void Swarm::note_unwritten(DocView reply, const std::vector<std::string>& ids) {
  const ValueView labels = reply["errorLabels"];
  if (!labels.is_array()) return;
  for (const Element& label : labels.as_document()) {
    if (label.as_string() == "NoWritesPerformed") unwritten_.insert(ids.begin(), ids.end());
  }
}

// A write without an answer; nothing may come back.
Task<void> Swarm::tell(Member& member) {
  const std::string id = fmt::format("{}-{}", member.index, member.next_id++);
  sent_.insert(id);
  SimClient& client = *member.second;
  const std::string command = fmt::format(
      R"({{"insert": "log", "documents": [{{"_id": "{}"}}], "writeConcern": {{"w": 0}}, "$db": "app"}})", id);
  auto telling = client.tell(json(command));
  co_await telling;
  world_.log().add(fmt::format("client {} tells", member.index));
  auto asking = ask(member, client, json(R"({"ping": 1, "$db": "admin"})"));
  co_await asking;
}

Task<void> Swarm::rival(Member* member, SimClient* client, BsonDoc command, Duration after,
                        Rival* rival) {
  if (after > Duration::zero()) co_await world_.worker(0).loop().sleep_for(after);
  // The cursor is in use, gone, or killed: by the other.
  static const std::set<std::int64_t> of_races = {43, 143, 237};
  auto asking = ask(*member, *client, std::move(command), of_races);
  rival->reply = co_await asking;
  rival->done = true;
}

// Two connections, mostly on two workers, use one cursor at the same time.
Task<void> Swarm::race(Member& member) {
  const Query query = draw_query(member.dice);
  auto opening = ask(member, *member.first, query.command);
  auto reply = co_await opening;
  std::vector<BsonDoc> returned;
  bool whole = false, torn = false;
  while (reply && is_ok(*reply)) {
    for (BsonDoc& document : batch_of(*reply)) returned.push_back(std::move(document));
    const std::int64_t id = cursor_id(*reply);
    whole = id == 0;
    if (whole || ending_) break;
    const bool kills = member.dice.percent(25);
    BsonWriter more;
    more.append("getMore", id).append("collection", query.collection);
    more.append("batchSize", member.dice.between(1, 20)).append("$db", "app");
    const BsonDoc get_more = std::move(more).finish();
    BsonWriter kill;
    kill.append("killCursors", query.collection).begin_array("cursors").append_item(id).end();
    kill.append("$db", "app");
    Rival rivals[2];
    TaskGroup group;
    const milliseconds gap(member.dice.percent(40) ? 0 : member.dice.between(0, 12));
    const bool second_first = member.dice.percent(50);
    group.start(rival(&member, member.first.get(), get_more, second_first ? gap : milliseconds(0), &rivals[0]));
    group.start(rival(&member, member.second.get(), kills ? std::move(kill).finish() : get_more,
                      second_first ? milliseconds(0) : gap, &rivals[1]));
    co_await group.wait();
    reply = std::move(rivals[0].reply);
    const std::optional<BsonDoc>& other = rivals[1].reply;
    torn = torn || !reply || !other;  // a batch may have got lost
    if (kills) {
      const bool killed = other && is_ok(*other) &&
                          other->view()["cursorsKilled"].as_document().count() == 1;
      const bool ended = reply && is_ok(*reply) && cursor_id(*reply) == 0;
      const bool refused = reply && !is_ok(*reply);
      if (other && is_ok(*other) && reply && !killed && !ended && !refused) {
        fail("a cursor lives on that killCursors did not find: " + to_json(*other));
      }
      if (!killed) continue;
      // Whatever the getMore gave, the next hears that it is gone.
      if (reply && is_ok(*reply)) {
        for (BsonDoc& document : batch_of(*reply)) returned.push_back(std::move(document));
        whole = cursor_id(*reply) == 0;
      }
      static const std::set<std::int64_t> of_kills = {43, 237};
      auto asking = ask(member, *member.first, get_more, of_kills);
      auto after = co_await asking;
      if (after && is_ok(*after)) fail("a killed cursor was read: " + to_json(*after, 300));
      break;
    }
    const bool both = reply && is_ok(*reply) && other && is_ok(*other);
    if (both && cursor_id(*reply) == 0) whole = true;
    if (other && is_ok(*other)) {
      if (both) {
        for (BsonDoc& document : batch_of(*reply)) returned.push_back(std::move(document));
        if (cursor_id(*reply) == 0) {
          for (BsonDoc& document : batch_of(*other)) returned.push_back(std::move(document));
          break;
        }
      }
      reply = other;
      continue;
    }
    // Refused because the other has it: but if both are, neither does.
    if (!setting_.lossy && setting_.memory_limit_bytes == 0 && reply && !is_ok(*reply) && other && !is_ok(*other)) {
      fail(fmt::format("both getMores of a race were refused: {}, {}", to_json(*reply), to_json(*other)));
    }
  }
  check_documents(query, returned, whole && !torn, false);
}

// A client that leaves while it waits.
Task<void> Swarm::abandon(Member& member) {
  const Query query = draw_query(member.dice);
  SimClient& client = *member.second;
  auto sending = client.send(query.command);
  const bool sent = co_await sending;
  co_await world_.worker(0).loop().sleep_for(milliseconds(member.dice.between(0, 600)));
  abandoned_ = true;
  member.dice.percent(50) ? client.close() : client.reset();
  world_.log().add(fmt::format("client {} leaves {}", member.index, sent));
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
  if (reply) note_unwritten(*reply, ids);
  if (!reply || !is_ok(*reply)) co_return;
  const ValueView errors = reply->view()["writeErrors"];
  if (!errors.exists()) {
    if (reply->view()["n"].to_int64() != documents)
      fail("an insert's n is wrong: " + to_json(*reply));
    acknowledged_.insert(ids.begin(), ids.end());
    co_return;
  }
  check_write_errors(*reply);
}

void Swarm::check_write_errors(DocView reply) {
  constexpr std::int64_t several_shards_failed = 65;
  for (const Element& error : reply["writeErrors"].as_document()) {
    std::vector<std::int64_t> codes;
    if (code_of(error.as_document()) == several_shards_failed) {
      for (const Element& cause : error.as_document().find_path("errInfo.causedBy").as_document()) {
        codes.push_back(code_of(cause.as_document()));
      }
    } else {
      codes.push_back(code_of(error.as_document()));
    }
    static const std::set<std::int64_t> allowed = {6, 7, 89, 133, 202};
    for (const std::int64_t code : codes) {
      const bool short_of_memory = setting_.memory_limit_bytes != 0 && code == 462;
      if (!short_of_memory && (!setting_.lossy || !allowed.contains(code))) fail("a write failed: " + to_json(reply));
    }
  }
}

// A write that would show if it were executed twice: of one document or of all, with a transaction number or without.
Task<void> Swarm::count_up(Member& member) {
  const std::string field = fmt::format("n{}_{}", member.index, member.next_sum++);
  const std::int64_t total = static_cast<std::int64_t>(setting_.shards) * sums_per_shard;
  const bool all = member.dice.percent(60);
  const std::int64_t id = member.dice.between(0, total - 1);
  std::set<std::int64_t> documents;
  for (std::int64_t each = 0; each < total; ++each) {
    if (all || each == id) documents.insert(each);
  }
  sums_[field];  // not known to be done
  const std::string update = fmt::format(R"({{"$inc": {{"{}": 1}}}})", field);
  BsonWriter out;
  if (!all && member.dice.percent(30)) {
    out.append("findAndModify", "sums").append("query", json(fmt::format(R"({{"_id": {}}})", id)));
    out.append("update", json(update));
  } else {
    out.append("update", "sums").begin_array("updates");
    out.append_item(json(fmt::format(R"({{"q": {}, "u": {}, "multi": {}}})",
                                     all ? "{}" : fmt::format(R"({{"_id": {}}})", id), update, all)));
    out.end();
  }
  if (!all && setting_.replica_set && member.dice.percent(60)) {
    std::uint8_t uuid[16] = {};
    uuid[0] = static_cast<std::uint8_t>(member.index + 1);
    out.begin_document("lsid").append_binary("id", 4, uuid).end();
    out.append("txnNumber", ++member.txn_number);
  }
  out.append("$db", "app");
  auto asking = ask(member, *member.first, std::move(out).finish());
  auto reply = co_await asking;
  if (!reply || !is_ok(*reply)) co_return;
  if (reply->view()["writeErrors"].exists()) {
    check_write_errors(*reply);
  } else {
    sums_[field] = documents;
  }
}

Task<void> Swarm::count(Member& member) {
  const std::int64_t k = member.dice.between(0, 7);
  auto asking =
      ask(member, *member.first,
          json(fmt::format(R"({{"count": "docs", "query": {{"k": {}}}, "$db": "app"}})", k)));
  auto reply = co_await asking;
  if (!reply || !is_ok(*reply)) co_return;
  const auto expected = std::count_if(docs_.begin(), docs_.end(), [k](const BsonDoc& each) {
    return each.view()["k"].as_int32() == k;
  });
  if (reply->view()["n"].to_int64() != expected) {
    fail(fmt::format("count of k {} is {}, not {}", k, to_json(*reply), expected));
  }
}

Task<void> Swarm::group(Member& member) {
  auto asking = ask(member, *member.first, json(R"({"aggregate": "docs", "pipeline":
    [{"$group": {"_id": "$k", "n": {"$sum": 1}}}], "cursor": {}, "$db": "app"})"));
  auto reply = co_await asking;
  if (!reply || !is_ok(*reply)) co_return;
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
  const std::int64_t what = member.dice.between(0, 109);
  if (what < 20) return point_find(member);
  if (what < 48) return scan(member);
  if (what < 62) return race(member);
  if (what < 67) return abandon(member);
  if (what < 77) return insert(member);
  if (what < 81) return tell(member);
  if (what < 87) return count(member);
  if (what < 93) return group(member);
  if (what < 100) return pipelined(member);
  return count_up(member);
}

Task<void> Swarm::live(Member* member) {
  Loop& loop = world_.worker(0).loop();
  for (int i = 0; i < setting_.operations && !ending_; ++i) {
    co_await loop.sleep_for(milliseconds(member->dice.between(0, 200)));
    auto doing = something(*member);
    co_await doing;
  }
  co_await loop.sleep_for(milliseconds(100));  // for what should not come
  member->first->close();
  member->second->close();
  member->done = true;
}

}  // namespace spillway::test
