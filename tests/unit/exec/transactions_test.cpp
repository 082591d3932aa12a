#include "proxy/exec/access/transactions.h"

#include "tests/unit/exec/write_support.h"

namespace spillway::exec {
namespace {

constexpr TimePoint start{std::chrono::hours(1)};
const catalog::ShardSet s0{0}, s1{1}, both_shards{0, 1};

std::string shown(const TransactionTable::Statement& statement) {
  std::string text = statement.error ? "error " + std::to_string(statement.error->code) : "ok";
  for (const auto shard : statement.to_abort ? statement.to_abort->shards : catalog::ShardSet{}) {
    text += " abort s" + std::to_string(shard);
  }
  return text;
}

TEST_CASE("a transaction stays on its first shard", "[transactions]") {
  TransactionTable table;
  CHECK(shown(table.statement("a", 1, true, s0, false, start)) == "ok");
  CHECK(shown(table.statement("a", 1, false, s0, true, start)) == "ok");
  CHECK(table.find("a", 1)->participants.recovery_shard() == catalog::ShardIndex{0});
  CHECK(shown(table.statement("a", 1, false, s1, true, start)) == "error 263 abort s0");
  CHECK(shown(table.statement("a", 1, false, s0, true, start)) == "error 251");
  CHECK(table.commit("a", 1, start).error().code == 251);
}

TEST_CASE("a first statement for several shards ends the transaction", "[transactions]") {
  TransactionTable table;
  CHECK(shown(table.statement("a", 1, true, both_shards, false, start)) == "error 263");
  CHECK(table.abort("a", 1, start).error().code == 251);
}

TEST_CASE("numbers of transactions only grow", "[transactions]") {
  TransactionTable table;
  CHECK(shown(table.statement("a", 5, false, s0, false, start)) == "error 251");
  CHECK(shown(table.statement("a", 5, true, s0, false, start)) == "ok");
  CHECK(shown(table.statement("a", 5, true, s0, false, start)) == "error 117");
  CHECK(shown(table.statement("a", 4, true, s0, false, start)) == "error 225");
  CHECK(shown(table.statement("a", 6, false, s0, false, start)) == "error 251");
  CHECK(shown(table.statement("a", 6, true, s1, false, start)) == "ok abort s0");
  CHECK(shown(table.statement("a", 7, true, s1, false, start)) ==
        "ok");  // the shard drops the older one itself
  CHECK(table.commit("a", 6, start).error().code == 225);
}

TEST_CASE("commits and aborts know their shard", "[transactions]") {
  TransactionTable table;
  CHECK_FALSE(table.commit("a", 1, start)->has_value());  // not known here
  CHECK(table.abort("a", 1, start).error().code == 251);
  table.statement("a", 1, true, s1, true, start);
  const auto first = table.commit("a", 1, start);
  REQUIRE(first->has_value());
  CHECK((*first)->shards() == s1);
  const auto again = table.commit("a", 1, start);  // a driver's retry
  REQUIRE(again->has_value());
  CHECK((*again)->shards() == s1);
  table.statement("a", 2, true, s0, false, start);
  CHECK(table.abort("a", 2, start)->shards() == s0);
  CHECK(table.abort("a", 2, start)->shards() == s0);  // the first may not have reached the shard
}

TEST_CASE("a transaction whose statement failed cannot be committed", "[transactions]") {
  TransactionTable table;
  CHECK_FALSE(table.fail("a", 1));
  table.statement("a", 1, true, s1, true, start);
  CHECK_FALSE(table.fail("a", 2));
  const auto open = table.fail("a", 1);
  REQUIRE(open);
  CHECK(open->shards == s1);
  CHECK(open->txn_number == 1);
  CHECK_FALSE(table.fail("a", 1));
  CHECK(table.commit("a", 1, start).error().code == 251);
  CHECK(shown(table.statement("a", 1, false, s1, true, start)) == "error 251");
  table.statement("a", 2, true, s1, true, start);
  CHECK(table.commit("a", 2, start)->has_value());
  CHECK_FALSE(table.fail("a", 2));  // the commit decides
  CHECK(table.commit("a", 2, start)->has_value());
}

TEST_CASE("transactions expire and are bounded", "[transactions]") {
  TransactionTable table(16);  // one per stripe
  table.statement("a", 1, true, s0, false, start);
  CHECK(shown(table.statement("a", 1, false, s0, false, start + TransactionTable::lifetime)) ==
        "error 251");
  std::size_t refused = 0;
  for (int i = 0; i < 1000; ++i) {
    if (table.statement("b" + std::to_string(i), 1, true, s0, false, start).error) ++refused;
  }
  CHECK(refused >= 984);
  CHECK(table.size() <= 16);
  // What has expired makes room.
  CHECK(shown(table.statement("c", 1, true, s0, false, start + 2 * TransactionTable::lifetime)) ==
        "ok");
}

TEST_CASE("transactions that have ended give way to new ones", "[transactions]") {
  TransactionTable table(16 * 8);
  const auto begin = [&](const std::string& lsid, TimePoint now) {
    return table.statement(lsid, 1, true, s0, false, now).error;
  };
  TimePoint now = start;
  CHECK_FALSE(begin("open", now));
  for (int i = 0; i < 1000; ++i) {
    now += std::chrono::milliseconds(1);
    const std::string lsid = "b" + std::to_string(i);
    REQUIRE_FALSE(begin(lsid, now));
    if (i % 2 == 0) {
      REQUIRE(table.commit(lsid, 1, now).has_value());
    } else {
      REQUIRE(table.abort(lsid, 1, now).has_value());
    }
  }
  CHECK(table.size() <= 16 * 8);
  CHECK(table.find("b999", 1));  // the last to end are kept: a commit may be sent again
  CHECK(shown(table.statement("open", 1, false, s0, false, now)) == "ok");
}

TEST_CASE("a user whose transactions fill its share has the next one as soon as one of them ends", "[transactions]") {
  TransactionTable table(16 * 8);
  const auto begin = [&](int i) {
    const auto statement = table.statement("a" + std::to_string(i), 1, true, s0, false, start, "ann");
    return !statement.error;
  };
  std::vector<int> begun;
  for (int i = 0; i < 1000; ++i) {
    if (begin(i)) begun.push_back(i);
  }
  CHECK(begun.size() >= 16);
  CHECK(begun.size() <= 16 * 4);
  // At the same moment: that nothing was found to drop before does not count any more.
  for (const int i : begun) REQUIRE(table.abort("a" + std::to_string(i), 1, start).has_value());
  std::size_t again = 0;
  for (int i = 1000; i < 2000; ++i) again += begin(i) ? 1 : 0;
  CHECK(again == begun.size());
}

TEST_CASE("a user with many open transactions keeps no other user from its own, and none ends for another",
          "[transactions]") {
  constexpr std::size_t capacity = 16 * 64;
  TransactionTable table(capacity);
  const auto begun = [&](const std::string& user, int first, int count) {
    int all = 0;
    for (int i = first; i < first + count; ++i) {
      const auto statement = table.statement(user + std::to_string(i), 1, true, s0, false, start, user);
      if (statement.error) CHECK(statement.error->code == 261);
      all += statement.error ? 0 : 1;
    }
    return all;
  };
  REQUIRE(begun("ann", 0, 16) == 16);
  const int most = begun("mallory", 0, 10'000);
  CHECK(most > 400);
  CHECK(most <= static_cast<int>(capacity / 2));
  CHECK(begun("ann", 16, 16) == 16);
  CHECK(begun("bob", 0, 64) == 64);
  CHECK(begun("mallory", 10'000, 1000) == 0);
  // What they have goes on.
  for (int i = 0; i < 16; ++i)
    CHECK(shown(table.statement("ann" + std::to_string(i), 1, false, s0, false, start)) == "ok");
  for (int i = 0, open = 0; i < 10'000; ++i) {
    open += table.find("mallory" + std::to_string(i), 1).has_value();
    if (i == 9'999) CHECK(open == most);
  }
  // A user that ends one has room again: its ended ones go, no other user's do.
  REQUIRE(table.commit("ann0", 1, start)->has_value());
  for (int i = 0; i < 10'000; ++i) {
    if (table.find("mallory" + std::to_string(i), 1))
      REQUIRE(table.commit("mallory" + std::to_string(i), 1, start)->has_value());
  }
  CHECK(begun("mallory", 20'000, 64) == 64);
  CHECK(table.find("ann0", 1));
}

TEST_CASE("transactions that are open on no shard make room, and those that shards have aborted", "[transactions]") {
  TransactionTable table(16 * 8);
  const TransactionConcern concern;
  TimePoint now = start;
  REQUIRE_FALSE(table.statement("open", 1, true, s0, false, now).error);
  for (int i = 0; i < 1000; ++i) {
    now += std::chrono::milliseconds(1);
    CHECK_FALSE(table.statement_in_cluster("a" + std::to_string(i), 1, &concern, now).error);
  }
  CHECK(table.find("open", 1));
  CHECK(table.find("a999", 1));
  for (int i = 0; i < 1000; ++i) table.statement("b" + std::to_string(i), 1, true, s0, false, now);
  CHECK(table.statement("c", 1, true, s0, false, now).error);
  CHECK_FALSE(table.statement("c", 1, true, s0, false, now + std::chrono::minutes(4)).error);
}

TEST_CASE("where there are no users the table is everybody's", "[transactions]") {
  TransactionTable table(16 * 8);
  for (int i = 0; i < 2000; ++i) table.statement("a" + std::to_string(i), 1, true, s0, false, start);
  CHECK(table.size() == 16 * 8);
}

TEST_CASE("a transaction that has not begun is forgotten, any other is not", "[transactions]") {
  TransactionTable table;
  const TimePoint later = start + std::chrono::seconds(1);
  table.statement("a", 1, true, s0, false, start);
  table.forget("a", 1, later);  // of an earlier statement
  table.forget("a", 2, start);
  CHECK(shown(table.statement("a", 1, true, s0, false, later)) == "error 117");
  table.forget("a", 1, start);
  CHECK(shown(table.statement("a", 1, true, s1, false, later)) == "ok");
}

TEST_CASE("sessions that end leave transactions to abort", "[transactions]") {
  TransactionTable table;
  table.statement("a", 1, true, s1, false, start);
  table.statement("b", 1, true, s0, false, start);
  const auto open = table.end_sessions({session_id_of_lsid("a")}, false);
  REQUIRE(open.size() == 1);
  CHECK(open.front().shards == s1);
  CHECK(open.front().txn_number == 1);
  CHECK(table.size() == 1);
}

TEST_CASE("a killed session's transaction is known as aborted", "[transactions]") {
  TransactionTable table;
  table.statement("a", 1, true, s1, false, start);
  CHECK(table.end_sessions({session_id_of_lsid("a")}, true).size() == 1);
  CHECK(shown(table.statement("a", 1, false, s1, false, start)) == "error 251");
  CHECK(table.commit("a", 1, start).error().code == 251);  // without: unknown here, and there is no recoveryToken
  CHECK(shown(table.statement("a", 2, true, s1, false, start)) == "ok");
  CHECK(table.end_all_sessions(true).size() == 1);
  CHECK(table.commit("a", 2, start).error().code == 251);
  CHECK(table.aborted() == 2);
}

// Participants as rules: contacts and answers of shards, statement by statement.

using Type = CommitPlan::Type;

TEST_CASE("a shard begins with its first command, and the first of all coordinates", "[transactions]") {
  Participants parts;
  const auto shown_contact = [&](catalog::ShardIndex shard) {
    const auto contact = parts.contact(shard);
    return std::string(contact.first ? "first " : "") + (contact.coordinator ? "coordinator" : "");
  };
  parts.begin_statement();
  CHECK(shown_contact(1) == "first coordinator");
  CHECK(shown_contact(0) == "first ");
  CHECK(shown_contact(1) == "coordinator");
  parts.begin_statement();
  CHECK(shown_contact(0).empty());
  CHECK(shown_contact(2) == "first ");
}

TEST_CASE("a transaction is committed by the shard that has written", "[transactions]") {
  const auto plan_of = [](std::string_view parts_by_shard, bool one_writer_last) {
    Participants parts;
    parts.begin_statement();
    for (std::size_t i = 0; i < parts_by_shard.size(); ++i) {
      const auto shard = static_cast<catalog::ShardIndex>(i);
      parts.contact(shard);
      parts.note_answer(shard, parts_by_shard[i] == 'r');
    }
    REQUIRE_FALSE(parts.unanswered());
    parts.choose_commit(one_writer_last);
    parts.choose_commit(!one_writer_last);  // the first choice stays
    return parts.plan_commit();
  };
  CHECK(plan_of("", true).type == Type::no_shards);
  CHECK(plan_of("r", true).type == Type::single_shard);
  CHECK(plan_of("w", false).type == Type::single_shard);
  const auto reads = plan_of("rr", true);
  CHECK(reads.type == Type::read_only);
  CHECK(reads.first == both_shards);
  const auto one = plan_of("rwr", true);
  CHECK(one.type == Type::single_write_shard);
  CHECK(one.first == catalog::ShardSet{0, 2});
  CHECK(one.last == 1);
  const auto one_later = plan_of("rw", false);
  CHECK(one_later.type == Type::two_phase);
  CHECK(one_later.last == 0);  // coordinated by the first
  const auto several = plan_of("rww", true);
  CHECK(several.type == Type::two_phase);
  CHECK(several.first == catalog::ShardSet{0, 1, 2});
}

TEST_CASE("a shard that has written stays a writer, and the first of them knows the outcome", "[transactions]") {
  Participants parts;
  parts.begin_statement();
  parts.contact(0);
  parts.note_answer(0, true);
  CHECK_FALSE(parts.recovery_shard());
  parts.contact(1);
  CHECK(parts.unanswered() == catalog::ShardIndex{1});
  parts.note_answer(1, false);
  parts.note_answer(1, true);
  parts.note_answer(0, false);
  CHECK(parts.recovery_shard() == catalog::ShardIndex{1});
  parts.choose_commit(true);
  CHECK(parts.plan_commit().type == Type::two_phase);
  parts.note_answer(5, false);  // it was not asked
  CHECK(parts.size() == 2);
  parts.add(2, true);  // a shard has brought it in
  CHECK(parts.shards() == catalog::ShardSet{0, 1, 2});
}

TEST_CASE("a statement may be sent again only if it has reached no earlier shard", "[transactions]") {
  Participants parts;
  parts.begin_statement();
  parts.contact(0);
  parts.note_answer(0, false);
  parts.contact(1);
  CHECK(parts.may_restart());
  CHECK(parts.restart() == both_shards);
  CHECK(parts.empty());
  CHECK_FALSE(parts.recovery_shard());
  CHECK(parts.contact(1).coordinator);
  parts.note_answer(1, true);
  parts.begin_statement();
  parts.contact(0);
  CHECK(parts.may_restart());  // shard 1 has not seen it
  CHECK(parts.restart() == s0);
  CHECK(parts.shards() == s1);
  parts.contact(1);
  CHECK_FALSE(parts.may_restart());
}

TEST_CASE("a statement whose shard has brought in others is not sent again, and they are aborted", "[transactions]") {
  Participants parts;
  parts.begin_statement();
  parts.contact(0);
  parts.add_with_error(1);
  CHECK_FALSE(parts.may_restart());
  CHECK(parts.shards() == both_shards);
  parts.begin_statement();
  CHECK(parts.may_restart());
}

TEST_CASE("a transaction in a cluster takes shards as commands reach them", "[transactions]") {
  TransactionTable table;
  const TransactionConcern snapshot{.level = TransactionConcern::Level::snapshot};
  const auto begin = [&](std::int64_t number) {
    return shown(table.statement_in_cluster("a", number, &snapshot, start, {}));
  };
  const auto next = [&](std::int64_t number) {
    return shown(table.statement_in_cluster("a", number, nullptr, start, {}));
  };
  CHECK(next(1) == "error 251");
  CHECK(begin(1) == "ok");
  CHECK(begin(1) == "error 117");
  const auto first = table.contact("a", 1, 1, 70);
  REQUIRE(first);
  CHECK(first->with_shard.first);
  CHECK(first->concern.at_cluster_time == 70);
  table.note_answer("a", 1, 1, false);
  CHECK(next(1) == "ok");
  const auto second = table.contact("a", 1, 0, 80);
  CHECK(second->with_shard.first);
  CHECK(second->concern.at_cluster_time == 70);  // one time for all
  SECTION("and is not committed while one of them has not answered") {
    CHECK(table.commit("a", 1, start).error().code == 251);
    const auto open = table.fail("a", 1);
    REQUIRE(open);
    CHECK(open->shards == both_shards);
    CHECK_FALSE(table.contact("a", 1, 2, 90));  // no shard begins it any more
    CHECK(next(1) == "error 251");
  }
  SECTION("its commit is sent again as it was, and cannot be undone") {
    table.note_answer("a", 1, 0, true, {{2, true}});
    for (int i = 0; i < 2; ++i) {
      const auto parts = table.commit("a", 1, start);
      REQUIRE(parts->has_value());
      CHECK(table.plan_commit("a", 1, i == 0)->type == Type::single_write_shard);
      CHECK((*parts)->size() == 3);
    }
    CHECK(table.contact("a", 1, 1, 90)->with_shard.coordinator);
    CHECK_FALSE(table.contact("a", 1, 5, 90)->with_shard.first);
    CHECK(next(1) == "error 251");
    CHECK(table.abort("a", 1, start).error().code == 251);
    // Once it is done, it must not be done again: no error with a label.
    CHECK(table.note_committed("a", 1));
    CHECK(next(1) == "error 256");
    CHECK(table.abort("a", 1, start).error().code == 256);
    CHECK(table.commit("a", 1, start).has_value());
  }
  SECTION("its first statement chooses the time again") {
    CHECK(begin(2) == "ok abort s0 abort s1");
    table.contact("a", 2, 0, 100);
    const auto again = table.restart("a", 2, false);
    REQUIRE(again);
    CHECK(again->to_abort->shards == s0);
    CHECK(table.contact("a", 2, 0, 110)->concern.at_cluster_time == 110);
  }
  SECTION("a later one goes on after a view's refusal only") {
    table.note_answer("a", 1, 0, true);
    CHECK(next(1) == "ok");
    table.contact("a", 1, 0, 90);
    table.contact("a", 1, 2, 90);
    CHECK_FALSE(table.restart("a", 1, false));
    const auto again = table.restart("a", 1, true);
    REQUIRE(again);
    CHECK(again->to_abort->shards == catalog::ShardSet{2});
  }
}

TEST_CASE("transactions are counted by how they end", "[transactions]") {
  TransactionTable table;
  const auto now = TimePoint() + std::chrono::hours(1);
  const TransactionConcern concern;
  const auto begin = [&](const char* lsid, std::int64_t number) {
    CHECK_FALSE(table.statement_in_cluster(lsid, number, &concern, now).error);
    table.contact(lsid, number, 0, 1);
  };
  begin("a", 1);
  begin("a", 2);  // ends the first
  begin("b", 1);
  begin("c", 1);
  begin("d", 1);
  CHECK(table.abort("b", 1, now).has_value());
  CHECK(table.fail("c", 1));
  CHECK_FALSE(table.fail("c", 1));
  CHECK(table.started() == 5);
  CHECK(table.aborted() == 3);
  CHECK(table.active() == 2);
  CHECK(table.end_all_sessions(false).size() == 2);
  CHECK(table.aborted() == 5);
}

}  // namespace
}  // namespace spillway::exec
