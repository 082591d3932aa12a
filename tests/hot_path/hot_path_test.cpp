// Once it is warm, a worker answers the operations that clients send most without asking the heap
// for anything: a real worker on a thread of its own, real sockets, a canned shard behind it.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <catch2/catch.hpp>

#include <array>
#include <functional>
#include <future>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "allocator/buffer_heaps.h"
#include "cursor/bson_writer.h"
#include "cursor/cursor.h"
#include "proxy/base/file_descriptor.h"
#include "proxy/canned/canned.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/shared.h"
#include "proxy/exec/core/tracer.h"
#include "proxy/server/connections/worker.h"
#include "proxy/wire/message.h"
#include "proxy/wire/op_msg.h"
#include "tests/hot_path/counting_heap.h"
#include "tests/support/routing_text.h"

namespace spillway::test {
namespace {

constexpr int warm_up = 300;
constexpr int counted_operations = 1000;
constexpr int large_warm_up = 50;
constexpr int windows_max = 3;
constexpr int large_operations = 200;

// Small: of replies below the buffer heap's least block, which recycled blocks hold.
enum class Payload { small, large };

// 127.0.0.1 as inet_aton(3) takes it, too: as long as names of hosts are, not kept within a string.
constexpr std::string_view shard_host = "0177.000000000000.000000000000.000000000001";

struct Loopback {
  FileDescriptor near, far;
};

// A connected pair: Unix sockets have no addresses that a session could name.
Loopback connect_loopback() {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listener.get(), any, bytes) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), any, &bytes) == 0);
  Loopback pair;
  pair.near = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(pair.near.get(), any, bytes) == 0);
  pair.far = FileDescriptor(::accept(listener.get(), nullptr, nullptr));
  REQUIRE(pair.far.get() >= 0);
  return pair;
}

BsonDoc json(std::string_view text) { return BsonDoc::from_json(text).value(); }

// As drivers send it: a session, a read preference's absence, a cluster time's absence.
constexpr std::string_view session =
    R"("lsid": {"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}},
       "$db": "app"})";

BsonDoc command(std::string_view start) { return json(fmt::format("{{{}, {}", start, session)); }

// One worker before one canned shard, and a client that waits for its replies.
class World {
 public:
  explicit World(const std::string& routing, std::size_t shards = 1) : shared_(0) {
    std::string yaml = "routing:\n  shards:\n";
    server::WorkerOptions options;
    options.gateway.pool_min = 0;  // or housekeeping opens connections while operations are counted
    for (std::size_t i = 0; i < shards; ++i) {
      bench::CannedOptions canned;
      canned.index = static_cast<int>(i);
      canned.shard_count = static_cast<int>(shards);
      std::string error;
      shards_.push_back(bench::CannedShard::start(canned, error));
      REQUIRE(shards_.back() != nullptr);
      const std::string uri = fmt::format("mongodb://{}:{}", shard_host, shards_.back()->port());
      yaml += fmt::format("    - {{name: shard{}, uri: \"{}\"}}\n", i, uri);
      options.gateway.shards.push_back({fmt::format("shard{}", i), uri});
    }
    shared_.routing = test::load_routing(yaml + routing, "test").value();
    worker_ = std::make_unique<server::Worker>(0, shared_, options);
    shared_.workers.push_back(&worker_->context());
    shared_.parameters.read_ahead = false;  // a batch that is kept is no pass-through
    worker_->start();
    Loopback pair = connect_loopback();
    client_ = std::move(pair.near);
    worker_->adopt(std::move(pair.far), 1, server::Entrance::clients);
  }
  ~World() {
    client_.reset();
    worker_->begin_stop(Clock::now() + std::chrono::seconds(5), {});
    worker_->join();
  }

  // The reply's body; good until the next call.
  DocView call(const BsonDoc& command) {
    request_.clear();
    wire::begin_op_msg(request_, ++request_id_, 0, 0);
    wire::append_body(request_, command);
    wire::finish_op_msg(request_, false);
    return exchange();
  }
  // Sends the last command once more.
  DocView exchange() {
    REQUIRE(::send(client_.get(), request_.data(), request_.size(), 0) ==
            static_cast<ssize_t>(request_.size()));
    reply_.resize(limits::message_header_bytes);
    receive(0);
    reply_.resize(static_cast<std::size_t>(wire::parse_header(reply_)->message_length));
    receive(limits::message_header_bytes);
    const DocView body = DocView::trusted(reply_.data() + wire::op_msg_prefix_bytes);
    INFO(to_json(BsonDoc(body)));
    REQUIRE(body["ok"].truthy());
    return body;
  }

  // Sets every limit, so high that it is never reached.
  void limit_all() {
    LimitSettings settings;
    for (LimitValues& values : settings.per) {
      values.connections = values.cursors = 1'000;
      values.buffered_bytes = std::int64_t{1} << 30;
      values.operations_per_second = 10'000'000;
    }
    shared_.limits.configure(settings);
  }

  // To a collector that takes everything.
  void trace() {
    run_there([this] {
      const auto takes_all = [](auto) { return true; };
      shared_.tracer = std::make_unique<exec::Tracer>(shared_.memory.traces, shared_.metrics, takes_all);
    });
  }

  // On the worker's thread.
  void run_there(const std::function<void()>& what) {
    std::promise<void> done;
    worker_->loop().post([&] {
      what();
      done.set_value();
    });
    done.get_future().wait();
  }

  // The client is this user from now on, and has to be one.
  void log_in(std::vector<auth::RoleGrant> roles) {
    shared_.users.configure({{"a user with a long name", "admin", std::move(roles), {}, {}}});
    run_there([this] {
      shared_.authorization = true;
      for (exec::Client* client : worker_->context().clients) {
        client->login.user = shared_.users.table()->find("admin", "a user with a long name");
        client->login.generation = shared_.users.generation();
        client->user = client->login.user->id;
      }
    });
  }

  // Batches that a cursor keeps, for the client's next getMore or to merge them.
  void read_ahead() { shared_.parameters.read_ahead = true; }
  const exec::Metrics& metrics() const { return shared_.metrics; }
  // Until nothing is being fetched for the cursor.
  void wait_until_idle(std::int64_t cursor) {
    while (!shared_.cursors.with_idle(cursor, [](ClusterCursor&) {})) std::this_thread::yield();
  }

  // The cursor of a find of app's documents, and its getMore as the next exchange().
  std::int64_t open_cursor(std::string_view find, std::optional<int> batch_size) {
    const DocView opened = call(command(find));
    const std::int64_t id = opened.find_path("cursor.id").to_int64().value();
    REQUIRE(id != 0);
    BsonWriter out;
    out.append("getMore", id)
        .append("collection", json(fmt::format("{{{}}}", find)).view()["find"].as_string());
    if (batch_size) out.append("batchSize", *batch_size);
    out.append_elements(command(R"("filter": {})").view());
    call(std::move(out).finish());
    return id;
  }

  // How many blocks the worker asks for while the warm operation is repeated; what it asked for
  // goes into the test's report. The least of a few windows: where the machine is busy, a timer of
  // the worker's own (a check of its shards, say) may fall into one.
  std::uint64_t count(const std::function<void()>& operation, Payload payload = Payload::small) {
    const bool small = payload == Payload::small;
    const int operations = small ? counted_operations : large_operations;
    for (int i = 0; i < (small ? warm_up : large_warm_up); ++i) operation();
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    bool took_large = true;
    std::vector<std::string> stacks;
    for (int window = 0; window < windows_max && (least > 0 || took_large); ++window) {
      std::uint64_t blocks = 0;
      const std::uint64_t large_before = BufferHeaps::current().taken_bytes();
      run_there([] { start_counting(); });
      for (int i = 0; i < operations; ++i) operation();
      run_there([&blocks] { blocks = stop_counting(); });
      if (!small || BufferHeaps::current().taken_bytes() == large_before) took_large = false;
      if (blocks >= least) continue;
      least = blocks;
      stacks = counted_stacks();
    }
    CHECK_FALSE(took_large);
    for (const std::string& stack : stacks) UNSCOPED_INFO(stack);
    return least;
  }

 private:
  void receive(std::size_t from) {
    REQUIRE(::recv(client_.get(), reply_.data() + from, reply_.size() - from, MSG_WAITALL) ==
            static_cast<ssize_t>(reply_.size() - from));
  }

  std::vector<std::unique_ptr<bench::CannedShard>> shards_;
  exec::Shared shared_;
  std::unique_ptr<server::Worker> worker_;
  FileDescriptor client_;
  std::vector<std::uint8_t> request_, reply_;
  std::int32_t request_id_ = 0;
};

constexpr std::string_view sharded =
    "  collections:\n    - {ns: app.point_200, key: {_id: hashed}}\n"
    "    - {ns: app.docs_200x100000, key: {_id: hashed}}\n"
    "    - {ns: app.docs_4000x1000000, key: {_id: hashed}}\n";

// What Asio keeps for its next operation is of another size after another kind of operation: once,
// not per operation.
constexpr std::uint64_t asio_blocks_max = 2;
// The same where timers and posts mix with replies as it happens: now and then, not per operation.
constexpr std::uint64_t asio_blocks_mixed_max = counted_operations / 40;

}  // namespace

TEST_CASE("a point find of a collection on one shard asks the heap for nothing") {
  World world("");
  world.call(command(R"("find": "point_200", "filter": {"_id": 7}, "limit": 1, "singleBatch": true)"));
  CHECK(world.count([&] { world.exchange(); }) == 0);
}

TEST_CASE("a point find of a sharded collection asks the heap for nothing") {
  World world(std::string(sharded), 2);
  world.call(command(R"("find": "point_200", "filter": {"_id": 7}, "limit": 1, "singleBatch": true)"));
  CHECK(world.count([&] { world.exchange(); }) == 0);
}

TEST_CASE("an insert of one document into a collection on one shard asks the heap for nothing") {
  World world("");
  world.call(command(R"("insert": "point_200", "documents": [{"_id": 7, "text": "seven"}])"));
  CHECK(world.count([&] { world.exchange(); }) == 0);
}

TEST_CASE("an insert of one document into a sharded collection asks the heap for nothing") {
  World world(std::string(sharded), 2);
  world.call(command(R"("insert": "point_200", "documents": [{"_id": 7, "text": "seven"}])"));
  CHECK(world.count([&] { world.exchange(); }) == 0);
}

TEST_CASE("a getMore that passes one shard's batch through asks the heap for nothing") {
  World world("");
  const DocView opened = world.call(command(R"("find": "docs_200x100000", "batchSize": 10)"));
  const std::int64_t id = opened.find_path("cursor.id").to_int64().value();
  REQUIRE(id != 0);
  BsonWriter out;
  out.append("getMore", id).append("collection", "docs_200x100000").append("batchSize", 10);
  out.append_elements(command(R"("filter": {})").view());
  world.call(std::move(out).finish());
  CHECK(world.count([&] { world.exchange(); }) == 0);
}

TEST_CASE("what a user's roles allow is looked up without asking the heap for anything") {
  World world(std::string(sharded), 2);
  world.call(command(R"("find": "point_200", "filter": {"_id": 7}, "limit": 1, "singleBatch": true)"));
  world.log_in({{"read", "other"}, {"readWrite", "app"}, {"clusterMonitor", "admin"}});
  CHECK(world.count([&] { world.exchange(); }) <= asio_blocks_max);
  world.call(command(R"("insert": "point_200", "documents": [{"_id": 7, "text": "seven"}])"));
  CHECK(world.count([&] { world.exchange(); }) <= asio_blocks_max);
}

TEST_CASE("limits of all kinds are kept without asking the heap for anything") {
  World world(std::string(sharded), 2);
  world.limit_all();
  world.call(command(R"("find": "point_200", "filter": {"_id": 7}, "limit": 1, "singleBatch": true)"));
  CHECK(world.count([&] { world.exchange(); }) == 0);
  world.call(command(R"("insert": "point_200", "documents": [{"_id": 7, "text": "seven"}])"));
  CHECK(world.count([&] { world.exchange(); }) <= asio_blocks_max);
}

TEST_CASE("where commands may be traced, one without a traceparent asks the heap for nothing") {
  World world(std::string(sharded), 2);
  world.trace();
  world.call(command(R"("find": "point_200", "filter": {"_id": 7}, "limit": 1, "singleBatch": true)"));
  CHECK(world.count([&] { world.exchange(); }) == 0);
  world.call(command(R"("find": "point_200", "filter": {"_id": 7}, "limit": 1, "comment": "no traceparent")"));
  CHECK(world.count([&] { world.exchange(); }) == 0);
}

TEST_CASE("a getMore that was read ahead of asks the heap for nothing") {
  World world("");
  world.read_ahead();
  const std::int64_t id = world.open_cursor(R"("find": "docs_200x100000", "batchSize": 10)", 10);
  const auto hits = [&] { return world.metrics().read_ahead_hits.value(); };
  SECTION("the batch is there") {
    const std::uint64_t before = hits();
    CHECK(world.count([&] {
      world.wait_until_idle(id);
      world.exchange();
    }) == 0);
    CHECK(hits() - before > counted_operations);
  }
  SECTION("the client is faster than the shard") {
    // On busy cores the shard may be the faster one for a while.
    const TimePoint patience = Clock::now() + std::chrono::seconds(60);
    const auto waits = [&] { return world.metrics().read_ahead_waits.value(); };
    do {
      CHECK(world.count([&] { world.exchange(); }) <= asio_blocks_mixed_max);
    } while (waits() == 0 && Clock::now() < patience);
    CHECK(waits() > 0);
  }
}

TEST_CASE("a getMore of an unsorted cursor over two shards asks the heap for nothing") {
  World world(std::string(sharded), 2);
  SECTION("one shard's batch after the other's") {
    world.open_cursor(R"("find": "docs_200x100000", "batchSize": 10)", 10);
    CHECK(world.count([&] { world.exchange(); }) == 0);
  }
  SECTION("from what was read ahead") {
    world.read_ahead();
    world.open_cursor(R"("find": "docs_200x100000", "batchSize": 10)", 10);
    CHECK(world.count([&] { world.exchange(); }) <= asio_blocks_mixed_max);
  }
}

TEST_CASE("a getMore of a sorted cursor over two shards asks the heap for nothing") {
  World world(std::string(sharded), 2);
  SECTION("merged as it comes") {}
  SECTION("from what was read ahead") { world.read_ahead(); }
  world.open_cursor(R"("find": "docs_200x100000", "sort": {"_id": 1}, "batchSize": 10)", 10);
  CHECK(world.count([&] { world.exchange(); }) <= asio_blocks_mixed_max);
}

TEST_CASE("a getMore of megabytes asks for blocks of the buffer heap alone") {
  const bool merges = GENERATE(true, false);
  const bool ahead = GENERATE(false, true);
  const std::size_t shards = merges ? 2 : GENERATE(1, 2);
  CAPTURE(merges, ahead, shards);
  World world(shards > 1 ? std::string(sharded) : "", shards);
  if (ahead) world.read_ahead();
  world.open_cursor(merges ? R"("find": "docs_4000x1000000", "sort": {"_id": 1}, "batchSize": 400)"
                           : R"("find": "docs_4000x1000000", "batchSize": 400)",
                    400);
  CHECK(world.count([&] { world.exchange(); }, Payload::large) <= asio_blocks_mixed_max);
  CHECK((world.metrics().streamed_replies.value() > 0) != merges);
}

TEST_CASE("the room of a sort key stays with the thread between two getMores") {
  std::array<RemoteCursor, 3> remotes;
  const std::string key(100, 'k');
  const auto get_more = [&] {
    for (RemoteCursor& remote : remotes) remote.set_key(key);
    for (RemoteCursor& remote : remotes) CHECK(remote.key_bytes() > key.size());
    for (RemoteCursor& remote : remotes) remote.drop_key();
    for (RemoteCursor& remote : remotes) CHECK(remote.key_bytes() == 0);
  };
  get_more();
  std::uint64_t blocks = 0;
  for (int i = 0; i < 100; ++i) {
    start_counting();
    for (RemoteCursor& remote : remotes) remote.set_key(key);
    for (RemoteCursor& remote : remotes) remote.drop_key();
    blocks += stop_counting();
  }
  CHECK(blocks == 0);
}

// The cursor itself, of which an idle one takes less than 2 KiB; the first node of the index by connection
// and of that by session, for this cursor is alone in its stripe; and what is told to its shard when it ends.
TEST_CASE("a find that opens a cursor and its killCursors ask the heap for the cursor alone") {
  constexpr std::uint64_t blocks_max = 13;
  World world("");
  const BsonDoc find = command(R"("find": "docs_200x100000", "batchSize": 2)");
  CHECK(world.count([&] {
    const std::int64_t id = world.call(find).find_path("cursor.id").to_int64().value();
    BsonWriter out;
    out.append("killCursors", "docs_200x100000").begin_array("cursors").append_item(id).end();
    out.append_elements(command(R"("comment": 1)").view());
    world.call(std::move(out).finish());
  }) <= blocks_max * counted_operations + asio_blocks_mixed_max);
}

TEST_CASE("an update and a delete of one document ask the heap for nothing") {
  const std::string routing = GENERATE(std::string(), std::string(sharded));
  CAPTURE(routing);
  World world(routing, routing.empty() ? 1 : 2);
  SECTION("update") {
    world.call(command(
        R"("update": "point_200", "updates": [{"q": {"_id": 7}, "u": {"$set": {"a": 1}}}])"));
  }
  SECTION("delete") {
    world.call(command(R"("delete": "point_200", "deletes": [{"q": {"_id": 7}, "limit": 1}])"));
  }
  CHECK(world.count([&] { world.exchange(); }) == 0);
}

TEST_CASE("an aggregate of one shard asks the heap for nothing") {
  World world("");
  world.call(command(
      R"("aggregate": "docs_200x100000", "pipeline": [{"$match": {"_id": 7}}], "cursor": {})"));
  CHECK(world.count([&] { world.exchange(); }) == 0);
}

TEST_CASE("what is answered locally asks the heap for nothing") {
  World world("");
  SECTION("ping") { world.call(command(R"("ping": 1)")); }
  SECTION("hello") { world.call(command(R"("hello": 1)")); }
  CHECK(world.count([&] { world.exchange(); }) <= asio_blocks_max);
}

}  // namespace spillway::test
