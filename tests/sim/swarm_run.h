// A run under way: its clients, its shards' misfortunes, and the oracles.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/sim_support.h"
#include "tests/sim/swarm.h"
#include "tests/sim/swarm_setting.h"

namespace spillway::test {

// A find and what it must return.
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
  explicit Swarm(const Setting& setting) : setting_(setting), world_(world_options(setting)) {
    store();
  }

  SwarmResult run();

 private:
  struct Member {
    Member(std::size_t number, std::uint64_t seed, std::unique_ptr<SimClient> a,
           std::unique_ptr<SimClient> b)
        : index(number), dice(seed), first(std::move(a)), second(std::move(b)) {}
    std::size_t index;
    Dice dice;
    std::unique_ptr<SimClient> first, second;
    std::int64_t txn_number = 0;
    int next_id = 0, next_sum = 0;
    bool done = false;
  };
  // One of two requests that are under way together.
  struct Rival {
    std::optional<BsonDoc> reply;
    bool done = false;
  };

  void store();
  Task<void> live(Member* member);
  Task<void> hoard();
  std::unique_ptr<SimClient> client(std::size_t worker);
  Task<void> something(Member& member);
  Task<void> chaos();
  // nullopt: an error, which is in `error` then, or no answer at all. `may_meet`: codes that are no failure.
  Task<std::optional<BsonDoc>> ask(Member& member, SimClient& client, BsonDoc command,
                                   std::set<std::int64_t> may_meet = {});
  bool may_be_refused(DocView reply, const std::set<std::int64_t>& may_meet) const;
  Task<void> rival(Member* member, SimClient* client, BsonDoc command, Duration after, Rival* rival);
  Task<void> race(Member& member);
  Task<void> abandon(Member& member);
  Task<void> tell(Member& member);
  void note_unwritten(DocView reply, const std::vector<std::string>& ids);
  Task<void> point_find(Member& member);
  Task<void> scan(Member& member);
  Task<bool> leave_scan(Member& member, const Query& query, std::int64_t id);
  Task<void> insert(Member& member);
  Task<void> count_up(Member& member);
  Task<void> count(Member& member);
  Task<void> group(Member& member);
  Task<void> pipelined(Member& member);
  Query draw_query(Dice& dice);
  void check_documents(const Query& query, const std::vector<BsonDoc>& returned, bool whole,
                       bool in_order = true);
  void check_write_errors(DocView reply);
  void check_inserted();
  void check_sums();
  void check_cursors();
  void settle();
  void fail(std::string what) { result_.failures.push_back(std::move(what)); }
  const BsonDoc* known(const std::string& collection, DocView document) const;

  Setting setting_;
  SimWorld world_;
  SwarmResult result_;
  std::vector<BsonDoc> docs_, plain_;
  std::vector<std::unique_ptr<Member>> members_;
  std::set<std::string> acknowledged_, sent_, unwritten_;
  // By the field that it counts up, from nothing to 1: which documents of app.sums must have it; nullopt: any may.
  std::map<std::string, std::optional<std::set<std::int64_t>>> sums_;
  std::set<std::string> exceeded_;
  bool abandoned_ = false;  // a client left while it waited
  MemoryBudget budget_{"expectations", 0};
  bool ending_ = false;
  bool chaos_done_ = false;
  bool hoard_done_ = false;
};

}  // namespace spillway::test
