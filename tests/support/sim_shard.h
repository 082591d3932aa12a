// A small mongod in the simulated network: keeps documents, cursors and retryable writes in memory
// and can be told to misbehave. Obeys the wire protocol of its role: a standalone, or the primary
// of a replica set of one.
//
// In a cluster it has a role (sim_role.h), and may be one of several members of a set, which share its documents.
//
// Belongs to the thread of the loops it is attached to.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/budget.h"
#include "allocator/limits.h"
#include "cursor/bson_writer.h"
#include "proxy/wire/compression.h"
#include "proxy/wire/op_msg.h"
#include "tests/support/sim_log.h"
#include "tests/support/sim_role.h"
#include "tests/support/sim_transport.h"

namespace spillway::test {

struct Near;  // a filter's, sim_shard.cpp
class SimShard;

// The members of a replica set, when there is more than one.
struct SimSet {
  std::vector<SimShard*> members;
  SimShard* primary = nullptr;
  int elections = 1;
  void elect(SimShard& member) {
    primary = &member;
    ++elections;
  }
};

struct SimShardOptions {
  // none: no mongod, cannot compute {$meta: "sortKey"}. object: {"": value, …}, array: [value, …].
  enum class SortKeys { none, object, array };
  std::string host = "shard0";
  std::uint16_t port = 27018;
  std::string set_name;  // empty: a standalone
  SortKeys sort_keys = SortKeys::none;
  std::int32_t max_wire_version = 21;
  std::size_t batch_bytes_max = 16 * limits::mib;  // of documents; a mongod's cap, others have none
  // No batch with documents is the last: an empty one with id 0 says that it was (FerretDB).
  bool ends_with_empty_batch = false;
  std::vector<wire::Compressor> compressors{};  // that hello agrees to
};

class SimShard {
 public:
  enum class Fault {
    not_primary,        // an error, without executing
    cursor_not_found,   // the cursor that a getMore names is gone
    wrong_response_to,  // executed; the reply answers another request
    garbage_length,     // executed; the reply's length is no length
    cut_after,          // executed; the connection is reset before the reply
    cut_within,         // executed; the connection is reset in the middle of the reply
    die,                // executed; then the process is gone, without a reply
  };
  // What became of the cursors it opened.
  struct CursorCounts {
    std::uint64_t opened = 0, exhausted = 0, killed = 0, lost = 0;
    // Open ones whose id or whose killCursors may have been lost on the way.
    std::uint64_t excused = 0;
    std::uint64_t open() const noexcept { return opened - exhausted - killed - lost; }
    std::uint64_t forgotten() const noexcept { return open() - excused; }
  };

  // `first`: a member of the same set, whose documents this one shows.
  SimShard(SimShardOptions options, SimLog& log, SimShard* first = nullptr);
  ~SimShard();  // REQUIRES serving() == 0

  void play(SimRole& role) { role_ = &role; }  // which outlives it
  void join(SimSet& set) {                     // likewise
    set_ = &set;
    set.members.push_back(this);
    if (set.primary == nullptr) set.primary = this;
  }
  // Listens in one more network.
  void attach(SimNetwork& network);
  // The process ends: its connections and cursors are gone; what it stored remains.
  void die();
  void restart();
  void freeze();
  void thaw();

  // The next `times` commands of that name (empty: of any, handshakes aside) meet this fault.
  void misbehave(Fault fault, std::string command, int times = 1);
  void clear_faults() {
    orders_.clear();
    step_down_.reset();
  }
  // A set's primary steps down after this many yields, and is elected again after `pause`. A write yields before each
  // document that it changes. As in mongod, codes 189 and 10107 appear in `writeErrors` of the statement under way;
  // other codes replace the whole command's reply.
  void step_down(std::size_t yields, std::int32_t code, Duration pause);
  void step_down_now(Duration pause);
  std::size_t step_downs() const noexcept { return step_downs_; }
  Duration delay{};                    // before each reply, handshakes aside
  // Set: changes a command's reply before it is sent; handshakes aside.
  std::function<BsonDoc(std::string_view command, BsonDoc reply)> revise;
  std::function<void(DocView command)> observe;  // called with each command; handshakes aside
  std::string refused_stage;           // an aggregation with this stage is refused (40324)
  std::size_t cut_at_bytes = 300'000;  // cut_within: how much of the reply arrives
  std::size_t pause_at_bytes = SIZE_MAX;  // longer replies stop there, until this is raised

  void store(const std::string& ns, BsonDoc document) {
    stored_[ns].push_back(std::move(document));
  }
  const std::vector<BsonDoc>& stored(const std::string& ns) { return stored_[ns]; }
  std::vector<std::string> stored_names() const;
  // Removes what was stored and is so.
  void remove(const std::string& ns, const std::function<bool(DocView)>& is_so) {
    std::erase_if(stored_[ns], [&](const BsonDoc& each) { return is_so(each); });
  }
  // With a chunk's documents comes the history of the writes that can be retried.
  void take_history(const SimShard& donor);
  // Its cursors die, as by a timeout.
  void forget_cursors();
  // Open transactions end, as when a chunk that they have written to moves: the next statement hears 251.
  void abort_transactions() { transactions_.clear(); }
  std::size_t open_transactions() const noexcept { return transactions_.size(); }
  // Of its cluster, by name: for the commits that it coordinates, and the cursors that it merges.
  std::function<SimShard*(std::string_view)> find_shard;

  CursorCounts cursors() const;
  std::uint64_t seen(const std::string& command) const;        // commands of that name so far
  std::uint64_t applied() const noexcept { return applied_; }  // write statements executed, ever
  int serving() const noexcept { return serving_; }            // connections
  bool alive() const noexcept { return alive_; }
  const SimShardOptions& options() const noexcept { return options_; }

 private:
  struct Cursor {
    std::string ns;
    std::deque<BsonDoc> rest;
    bool excused = false;
  };
  struct StepDown {
    std::size_t yields;
    std::int32_t code;
    Duration pause;
  };
  void excuse_cursors();  // a message got lost
  bool primary() const noexcept {
    return (set_ == nullptr || set_->primary == this) && Clock::now() >= elected_at_;
  }
  std::string address() const { return options_.host + ":" + std::to_string(options_.port); }
  // What the request sees of a collection; `kept` holds it, if it is not all.
  std::span<const BsonDoc> visible(const std::string& ns, std::vector<BsonDoc>& kept);
  std::optional<BsonDoc> refusal(DocView body, std::string_view name) const;
  // The code that a write ends with at this yield; 0: it goes on.
  std::int32_t yield();
  struct Order {
    Fault fault;
    std::string command;
    int times;
  };
  Task<void> serve(std::unique_ptr<Transport> transport);
  Task<bool> answer(Transport& transport, Bytes message);
  Task<bool> write_reply(Transport& transport, std::vector<std::uint8_t> reply);
  Task<bool> answer_badly(Transport& transport, Fault fault, std::vector<std::uint8_t> reply);
  std::optional<Fault> next_fault(std::string_view command);
  BsonDoc execute(const wire::OpMsg& request, std::string_view name);
  BsonDoc hello(DocView request) const;
  BsonDoc find(DocView body, const std::string& ns);
  BsonDoc aggregate(DocView body, const std::string& ns);
  BsonDoc merge(DocView body, const std::string& ns);
  BsonDoc count(DocView body, const std::string& ns);
  BsonDoc distinct(DocView body, const std::string& ns);
  BsonDoc first_batch(const std::string& ns, std::vector<BsonDoc> documents, ValueView batch_size,
                      bool single_batch);
  BsonDoc get_more(DocView body, std::string_view db);
  BsonDoc kill_cursors(DocView body);
  BsonDoc write(const wire::OpMsg& request, std::string_view name, const std::string& ns);
  BsonDoc apply(const wire::OpMsg& request, std::string_view name, const std::string& ns,
                std::span<const DocView> statements, const std::vector<std::int32_t>& ids);
  // Within a transaction: what the statement changes is visible from the commit on.
  std::optional<BsonDoc> would_move(DocView body, std::string_view name, const std::string& ns, DocView statement);
  BsonDoc apply_at_commit(DocView body, std::string_view name, const std::string& ns,
                          std::span<const DocView> statements);
  BsonDoc end_transaction(DocView body, bool commits);
  // Of a cluster: begins where it is told to, and says whether it has written.
  BsonDoc execute_in_transaction(const wire::OpMsg& request, std::string_view name);
  void commit_open(const std::string& transaction);
  BsonDoc coordinate_commit(DocView body);
  BsonDoc find_and_modify(DocView body, const std::string& ns);
  // The effect of a statement, up to its interruption.
  struct Done {
    std::int64_t n = 0;
    std::int32_t code = 0;
    std::optional<SimRefusal> refused = {};  // in the middle
  };
  // Before it is written: does the write go on?
  bool goes_on(Done& done);
  Done insert_one(const std::string& ns, DocView document);
  Done update_some(const std::string& ns, DocView query, DocView update, bool multi);
  Done delete_some(const std::string& ns, DocView query, std::int64_t limit);
  void increment(BsonDoc& document, DocView update);
  std::set<std::int32_t>* executed_by(DocView body);
  BsonDoc projected(const BsonDoc& document, DocView projection);
  // `near`: null, or the order of the documents where there is no sort.
  BsonDoc with_sort_key(const BsonDoc& document, DocView sort, const Near* near,
                        DocView projection);
  std::size_t find_id(const std::string& ns, ValueView id);

  SimShardOptions options_;
  SimLog& log_;
  MemoryBudget budget_{"sim shard", 0};
  std::vector<SimNetwork*> networks_;
  struct Durable {  // of all members
    std::map<std::string, std::vector<BsonDoc>> stored;
    std::map<std::string, std::set<std::int32_t>> retryable;  // by session and txnNumber: statements executed
    std::map<std::string, BsonDoc> remembered;                // replies to findAndModify, likewise
    std::set<std::string> committed;                          // transactions
  };
  std::shared_ptr<Durable> durable_;
  std::map<std::string, std::vector<BsonDoc>>& stored_;
  std::map<std::string, std::set<std::int32_t>>& retryable_;
  std::map<std::string, BsonDoc>& remembered_;
  std::map<std::string, std::vector<std::function<void()>>> transactions_;  // open: what their commits do
  SimRole* role_ = nullptr;
  SimSet* set_ = nullptr;
  SimRequest* request_ = nullptr;  // that is being executed, with a role
  std::map<std::int64_t, Cursor> cursors_;
  std::map<std::string, std::uint64_t> seen_;
  std::vector<Order> orders_;
  CursorCounts cursor_counts_;
  std::optional<StepDown> step_down_;
  TimePoint elected_at_ = TimePoint::min();
  std::size_t step_downs_ = 0;
  std::int64_t next_cursor_ = 1;
  std::uint64_t applied_ = 0;
  int serving_ = 0;
  bool alive_ = true;
};

}  // namespace spillway::test
