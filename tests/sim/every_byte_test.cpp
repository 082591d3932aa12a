// One conversation, and one misfortune at each byte of it: on the way from the client and back, to
// each shard and back, the stream pauses there, ends there, or breaks there.
// SPILLWAY_SIM_STRIDE=n tries every n-th byte only.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr int span = 6;
constexpr std::size_t shards = 2;

// Whose connections: the client's, or those to one shard.
struct Place {
  std::string host;
  std::uint16_t port;
};

class Conversation {
 public:
  explicit Conversation(const std::optional<std::pair<Place, ByteFault>>& fault)
      : world_(options()), client_(world_.client()), fault_(fault) {
    store_documents(world_, span);
    if (fault) world_.network(0).set_byte_fault(fault->first.host, fault->first.port, fault->second);
  }

  SimWorld& world() { return world_; }

  void hold() {
    insert();
    point();
    scan(R"({"find": "docs", "sort": {"_id": -1}, "batchSize": 4, "$db": "app"})", true);
    scan(R"({"find": "docs", "batchSize": 4, "$db": "app"})", false);
    kill();
  }

  // What it was told is true; and now that nothing goes wrong any more, all is well.
  void check(bool whole) {
    for (const std::string& violation : client_->violations()) FAIL_CHECK(violation);
    if (whole) CHECK(answered_ == asked_);
    std::size_t stored = 0;
    for (std::size_t i = 0; i < shards; ++i) stored += world_.shard(i).stored("app.log").size();
    CHECK(stored <= 2);
    if (acknowledged_) CHECK(stored == 2);
    client_->reset();
    auto calm = world_.client();
    BsonDoc all = call(world_, *calm, R"({"find": "docs", "sort": {"_id": 1}, "$db": "app"})");
    CHECK(batch_of(all).size() == shards * span);
    calm->close();
    world_.run_for(seconds(100));
    for (std::size_t i = 0; i < shards; ++i) CHECK(world_.shard(i).cursors().forgotten() == 0);
    if (whole) {
      for (std::size_t i = 0; i < shards; ++i) CHECK(world_.shard(i).cursors().open() == 0);
    }
    require_quiet(world_);
  }

 private:
  static SimWorldOptions options() {
    SimWorldOptions options = sharded_world(shards, span);
    options.routing += "    - {ns: app.log, key: {_id: hashed}}\n";
    options.orphan_grace_ms = 5'000;
    return options;
  }

  std::optional<BsonDoc> ask(BsonDoc command) {
    ++asked_;
    auto reply = try_call(world_, *client_, std::move(command));
    if (!reply) return reply;
    INFO(to_json(*reply));
    static const std::set<std::int64_t> allowed = {0, 6, 7, 43, 89, 133, 202};
    CHECK(allowed.contains(code_of(*reply)));
    if (!is_ok(*reply)) return std::nullopt;
    ++answered_;
    return reply;
  }

  void insert() {
    const auto reply = ask(json(
        R"({"insert": "log", "documents": [{"_id": 1}, {"_id": 4}], "ordered": false, "$db": "app"})"));
    acknowledged_ = reply && !reply->view()["writeErrors"].exists();
  }

  void point() {
    const auto reply = ask(json(R"({"find": "docs", "filter": {"_id": 7}, "$db": "app"})"));
    if (reply) CHECK(batch_of(*reply).size() == 1);
  }

  void scan(std::string_view find, bool descending) {
    std::vector<std::int64_t> ids;
    auto reply = ask(json(find));
    while (reply) {
      for (const BsonDoc& each : batch_of(*reply)) ids.push_back(each.view()["_id"].as_int32());
      const std::int64_t id = cursor_id(*reply);
      if (id == 0) break;
      reply = ask(json(fmt::format(
          R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", "batchSize": 4, "$db": "app"}})",
          id)));
    }
    if (descending) CHECK(std::is_sorted(ids.rbegin(), ids.rend()));
    const std::set<std::int64_t> different(ids.begin(), ids.end());
    CHECK(different.size() == ids.size());
    if (reply) CHECK(ids.size() == shards * span);
  }

  void kill() {
    const auto reply = ask(json(R"({"find": "docs", "batchSize": 2, "$db": "app"})"));
    if (!reply) return;
    const auto killed = ask(json(fmt::format(
        R"({{"killCursors": "docs", "cursors": [{{"$numberLong": "{}"}}], "$db": "app"}})",
        cursor_id(*reply))));
    if (killed) CHECK(killed->view()["cursorsKilled"].as_document().count() == 1);
  }

  SimWorld world_;
  std::unique_ptr<SimClient> client_;
  std::optional<std::pair<Place, ByteFault>> fault_;
  bool acknowledged_ = false;
  std::size_t asked_ = 0, answered_ = 0;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t stride_default = 23;
#else
constexpr std::uint64_t stride_default = 1;
#endif

std::uint64_t stride() {
  const char* const text = std::getenv("SPILLWAY_SIM_STRIDE");
  return text == nullptr ? stride_default : std::max<std::uint64_t>(1, std::strtoull(text, nullptr, 10));
}

// How many bytes pass there when all goes well.
std::uint64_t bytes_of(const Place& place, bool to_host) {
  ByteFault never;
  never.at_bytes = UINT64_MAX;
  Conversation calm(std::pair{place, never});
  calm.hold();
  const std::uint64_t bytes = calm.world().network(0).bytes_passed(place.host, place.port, to_host);
  calm.check(true);
  return bytes;
}

}  // namespace

TEST_CASE("a misfortune at each byte of a conversation", "[bytes]") {
  const Place place = GENERATE(Place{"", 0}, Place{"shard0", 27018}, Place{"shard1", 27019});
  const bool to_host = GENERATE(true, false);
  const auto kind = GENERATE(ByteFault::Kind::split, ByteFault::Kind::reset, ByteFault::Kind::half_close);
  const std::uint64_t bytes = bytes_of(place, to_host);
  REQUIRE(bytes > 300);
  for (std::uint64_t at = 0; at < bytes; at += stride()) {
    ByteFault fault;
    fault.kind = kind;
    fault.to_host = to_host;
    fault.at_bytes = at;
    CAPTURE(place.host, to_host, static_cast<int>(kind), at);
    Conversation conversation(std::pair{place, fault});
    conversation.hold();
    CHECK(conversation.world().network(0).byte_fault_happened(place.host, place.port));
    conversation.check(kind == ByteFault::Kind::split);
  }
}

}  // namespace spillway::test
