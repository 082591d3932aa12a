// A set of shards that changes while workers use it.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "proxy/auth/service_login.h"
#include "proxy/shard/call_counts.h"
#include "tests/unit/shard/shard_workers.h"

using namespace spillway;
using namespace spillway::shard;
using namespace spillway::test;
using namespace std::chrono_literals;

namespace {

// Workers of one shard, and a host that is none yet.
struct Cluster : Workers {
  explicit Cluster(std::size_t count, const GatewayOptions& options = {}) : Workers(count, options) {
    for (const auto& worker : each) {
      hosts.push_back(std::make_unique<ScriptedServer>(worker->loop, worker->network, "n", 1));
    }
  }
  ~Cluster() {
    for (const auto& worker : each) worker->disconnect();
  }
  Gateway& gateway(std::size_t worker) { return *each[worker]->gateway; }
  std::uint16_t add(std::string_view name = "shard1", std::string_view uri = "mongodb://n:1/") {
    auto added = gateway(0).add_shard({std::string(name), std::string(uri)}, {});
    REQUIRE(added.has_value());
    return *added;
  }
  std::shared_ptr<Call> start(std::size_t worker, std::uint16_t shard, CallOptions options = {}) {
    return each[worker]->start(ping, options, shard);
  }
  const ShardState& state(std::size_t worker, std::size_t shard) { return gateway(worker).states()[shard]; }
  std::size_t connections() {
    std::size_t all = 0;
    for (const auto& worker : each) all += worker->network.open_connections("n", 1);
    return all;
  }

  std::vector<std::unique_ptr<ScriptedServer>> hosts;
};

}  // namespace

TEST_CASE("a shard that was added is there for every worker, at once") {
  Cluster cluster(3);
  const std::size_t looks_first = GENERATE(0u, 1u, 2u);
  const std::uint16_t index = cluster.add();
  CHECK(index == 1);
  // No loop has run since.
  switch (looks_first) {
    case 0:
      CHECK(cluster.gateway(2).capabilities(index).max_wire_version == 0);
      break;
    case 1:
      CHECK(cluster.gateway(2).states().size() == 2);
      break;
    default:
      break;
  }
  const auto call = cluster.start(2, index);
  REQUIRE(cluster.run_until([&] { return call->done(); }, 1s));
  CHECK(call->ok());
  CHECK(cluster.hosts[2]->commands == 1);
  cluster.run(1s);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(cluster.state(i, index).name == "shard1");
    CHECK(cluster.state(i, index).any_known());
    CHECK(cluster.gateway(i).capabilities(index).max_wire_version == 21);
    CHECK(cluster.call(i, {}, index)->ok());
    CHECK(cluster.call(i, {}, 0)->ok());
  }
  CHECK(cluster.start(1, 2)->code() == 70);
  // One monitor for all.
  const int others = cluster.hosts[1]->hellos + cluster.hosts[2]->hellos;
  const int mine = cluster.hosts[0]->hellos;
  cluster.run(1min);
  CHECK(cluster.hosts[1]->hellos + cluster.hosts[2]->hellos == others);
  CHECK(cluster.hosts[0]->hellos >= mine + 6);
}

TEST_CASE("what a caller looks at stays where it is when a shard is added meanwhile") {
  Cluster cluster(2);
  const std::vector<ShardState>& states = cluster.gateway(1).states();
  const ShardState* const first = states.data();
  for (int i = 0; i < 10; ++i) {
    cluster.add("shard" + std::to_string(i));
    CHECK(cluster.gateway(1).states().data() == first);
  }
  CHECK(states.size() == 11);
  CHECK(states[10].name == "shard9");
}

TEST_CASE("a shard whose connection string is wrong is not added") {
  Cluster cluster(1);
  const auto added = cluster.gateway(0).add_shard({"shard1", "mongodb://a,b/"}, {});
  REQUIRE(added.has_error());
  CHECK(added.error().code == 9);
  CHECK(added.error().message.find("shard shard1") != std::string::npos);
  CHECK(cluster.gateway(0).states().size() == 1);
  CHECK(cluster.add() == 1);
}

TEST_CASE("a retired shard answers no more, but ends what it has begun") {
  Cluster cluster(3);
  const std::uint16_t index = cluster.add();
  for (std::size_t i = 0; i < 3; ++i) REQUIRE(cluster.call(i, {}, index)->ok());
  for (const auto& host : cluster.hosts) host->delay = 5s;
  std::vector<std::shared_ptr<Call>> under_way;
  for (std::size_t i = 0; i < 3; ++i) under_way.push_back(cluster.start(i, index));
  cluster.run(1s);
  REQUIRE_FALSE(under_way[0]->done());

  cluster.gateway(0).retire_shard(index);
  cluster.gateway(0).retire_shard(index);
  auto refused = cluster.start(0, index);
  REQUIRE(refused->done());
  CHECK(refused->code() == 70);
  CHECK(refused->message().find("shard shard1") == 0);
  cluster.poll();
  CallOptions options;
  options.host = HostAddress{"n", 1};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(cluster.start(i, index)->code() == 70);
    CHECK(cluster.start(i, index, options)->code() == 70);
    CHECK(cluster.state(i, index).retired);
    CHECK(cluster.state(i, index).hosts.empty());
    CHECK(cluster.state(i, index).name == "shard1");
    CHECK_FALSE(cluster.state(i, 0).retired);
    CHECK_FALSE(under_way[i]->done());
  }
  CHECK(cluster.connections() == 3);  // those under way
  cluster.run(5s);
  for (const auto& call : under_way) CHECK(call->ok());
  CHECK(cluster.connections() == 0);
  const int hellos = cluster.hosts[0]->hellos;
  cluster.run(1min);
  CHECK(cluster.hosts[0]->hellos == hellos);
  CHECK(cluster.connections() == 0);

  // Its index is not given away, and its name may come back.
  for (const auto& host : cluster.hosts) host->delay = 0s;
  const std::uint16_t again = cluster.add();
  CHECK(again == index + 1);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(cluster.call(i, {}, again)->ok());
    CHECK(cluster.call(i, {}, index)->code() == 70);
  }
}

TEST_CASE("calls that wait for a shard end when it is retired") {
  GatewayOptions options;
  options.pool_max = 1;
  Cluster cluster(2, options);
  SECTION("for a host") {
    for (const auto& host : cluster.hosts) host->kill();
    const std::uint16_t index = cluster.add("shard1", "mongodb://n:1/?replicaSet=rs9");
    const auto first = cluster.start(0, index), second = cluster.start(1, index);
    cluster.run(2s);
    REQUIRE_FALSE((first->done() || second->done()));
    cluster.gateway(0).retire_shard(index);
    cluster.poll();
    CHECK(first->code() == 70);
    CHECK(second->code() == 70);
  }
  SECTION("for a connection") {
    const std::uint16_t index = cluster.add();
    for (const auto& host : cluster.hosts) host->delay = 5s;
    std::vector<std::shared_ptr<Call>> holds, waits;
    for (std::size_t i = 0; i < 2; ++i) {
      holds.push_back(cluster.start(i, index));
      cluster.run(100ms);
      waits.push_back(cluster.start(i, index));
    }
    cluster.run(1s);
    cluster.gateway(0).retire_shard(index);
    cluster.poll();
    for (const auto& call : waits) CHECK(call->code() == 70);
    cluster.run(5s);
    for (const auto& call : holds) CHECK(call->ok());
  }
  SECTION("for its answer, and may be sent again") {
    const std::uint16_t index = cluster.add();
    REQUIRE(cluster.call(1, {}, index)->ok());
    cluster.hosts[1]->delay = 5s;
    CallOptions idempotent;
    idempotent.retry = RetryPolicy::idempotent;
    const auto call = cluster.start(1, index, idempotent);
    cluster.run(1s);
    cluster.gateway(0).retire_shard(index);
    cluster.poll();
    cluster.hosts[1]->kill();
    cluster.run(1s);
    CHECK(call->code() == 70);
  }
}

TEST_CASE("a worker that meets a shard only after it was retired") {
  Cluster cluster(2);
  const std::uint16_t index = cluster.add();
  cluster.each[0]->run(1s);
  cluster.gateway(0).retire_shard(index);
  const auto call = cluster.start(1, index);
  cluster.run(1s);
  CHECK(call->done());
  CHECK((call->ok() || call->code() == 70));
  CHECK(cluster.state(1, index).retired);
  CHECK(cluster.call(1, {}, index)->code() == 70);
}

TEST_CASE("a stream that a retired shard has begun goes on, and its connection closes behind it") {
  Cluster cluster(1);
  const std::uint16_t index = cluster.add();
  cluster.hosts[0]->answer = [](DocView) {
    BsonWriter writer;
    writer.append("text", std::string_view(std::string(2'000'000, 'x'))).append("ok", 1.0);
    return std::move(writer).finish();
  };
  CallOptions options;
  options.stream = true;
  const auto call = cluster.call(0, options, index);
  REQUIRE(call->ok());
  Reply& reply = **call->result;
  REQUIRE(reply.streaming());
  cluster.gateway(0).retire_shard(index);
  cluster.run(1s);
  std::vector<std::uint8_t> piece(limits::stream_piece_bytes);
  std::size_t more = reply.lease->remaining();
  CHECK(more > 0);
  while (reply.lease->remaining() > 0) {
    more -= reply.lease->try_read_rest(piece).bytes;
    cluster.poll();
  }
  CHECK(more == 0);
  CHECK(cluster.connections() == 1);
  reply.lease.release();
  cluster.run(1s);
  CHECK(cluster.connections() == 0);
}

TEST_CASE("start-up does not wait for a retired shard") {
  Cluster cluster(1);
  const std::uint16_t index = cluster.add("gone", "mongodb://gone:1/?replicaSet=rs9");
  std::optional<bool> known;
  struct Waiting {
    static Task<void> run(Gateway* gateway, std::optional<bool>* known) {
      auto waiting = gateway->wait_until_known(Clock::now() + 1min);
      known->emplace(co_await waiting);
    }
  };
  cluster.each[0]->loop.spawn(Waiting::run(&cluster.gateway(0), &known));
  cluster.run(2s);
  CHECK_FALSE(known.has_value());
  cluster.gateway(0).retire_shard(index);
  cluster.poll();
  CHECK(known == true);
}

TEST_CASE("shards that were added get the credentials of the others") {
  Cluster cluster(2);
  const auto login = auth::ServiceLogin::make(auth::ServiceMechanism::x509, "CN=new", "$external", nullptr);
  REQUIRE(login.has_value());
  const std::uint16_t index = cluster.add();
  REQUIRE(cluster.call(1, {}, index)->ok());
  SECTION("one that is known") {
    REQUIRE(cluster.state(1, index).hosts[0].available == 1);
    cluster.gateway(1).use_credentials({{nullptr, *login}});
    CHECK(cluster.state(1, index).hosts[0].available == 0);
    CHECK(cluster.state(1, 0).hosts[0].available == 0);
  }
  SECTION("and one that the leader adds afterwards") {
    cluster.gateway(0).use_credentials({{nullptr, *login}});
    const std::uint16_t later = cluster.add("shard2");
    CHECK(cluster.call(0, {}, later)->ok());
    CHECK(cluster.hosts[0]->commands == 2);  // it logs in first
  }
  SECTION("and one that another worker added before it heard of them") {
    const auto log_ins = [&] { return cluster.hosts[1]->commands; };
    cluster.gateway(1).use_credentials({{nullptr, *login}});
    const std::uint16_t later = cluster.add("shard2");
    const int before = log_ins();
    CHECK(cluster.call(1, {}, later)->ok());
    CHECK(log_ins() == before + 2);  // it logs in first
    CHECK(cluster.hosts[0]->commands == 0);
  }
}

TEST_CASE("workers with shards that came and went shut down in any order") {
  std::vector<std::size_t> order{0, 1, 2};
  do {
    Cluster cluster(3);
    const std::uint16_t gone = cluster.add("gone"), kept = cluster.add("kept");
    for (std::size_t i = 0; i < 3; ++i) REQUIRE(cluster.call(i, {}, gone)->ok());
    cluster.gateway(0).retire_shard(gone);
    const std::uint16_t unseen = cluster.add("unseen");
    for (std::size_t i = 0; i < 3; ++i) {
      cluster.each[order[i]]->disconnect();
      for (std::size_t j = i + 1; j < 3; ++j) {
        CHECK(cluster.call(order[j], {}, kept)->ok());
        CHECK(cluster.call(order[j], {}, gone)->code() == 70);
      }
      cluster.run(30s);
    }
    static_cast<void>(unseen);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a worker that shuts down finds added shards closed") {
  Cluster cluster(2);
  cluster.each[1]->run(1s);
  struct Stopping {
    static Task<void> run(Gateway* gateway, bool* done) {
      auto stopping = gateway->shut_down();
      co_await stopping;
      *done = true;
    }
  };
  bool done = false;
  cluster.each[1]->loop.spawn(Stopping::run(&cluster.gateway(1), &done));
  const std::uint16_t index = cluster.add();
  CHECK(cluster.state(1, index).name == "shard1");
  const auto call = cluster.start(1, index);
  cluster.run(1s);
  CHECK(done);
  CHECK(call->code() == 6);
}

TEST_CASE("call statistics stay where they are while shards are added") {
  CallCountsList counts;
  CHECK(counts.find(0) == nullptr);
  std::vector<const CallCounts*> seen;
  for (std::size_t i = 0; i < 100; ++i) {
    counts.add_shard();
    counts[i].failed.add(i);
    seen.push_back(counts.find(i));
    REQUIRE(seen.back() != nullptr);
    CHECK(counts.find(i + 1) == nullptr);
  }
  for (std::size_t i = 0; i < 100; ++i) {
    CHECK(counts.find(i) == seen[i]);
    CHECK(counts.find(i)->failed.value() == i);
  }
}

// For the thread sanitizer: the first worker adds and retires, others call, and another thread reads.
TEST_CASE("shards come and go under workers on threads of their own") {
  constexpr std::size_t count = 3;
  constexpr int rounds = 40;
  Cluster cluster(count);
  std::atomic<bool> stop{false};
  std::atomic<int> added{0};
  std::array<std::atomic<int>, count> answered{};
  std::array<std::atomic<std::uint64_t>, count> idle{};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  std::vector<std::vector<std::shared_ptr<Call>>> calls(count);
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      Worker& worker = *cluster.each[i];
      auto& own = calls[i];
      int shards = 0;  // that this one has used
      while (!stop) {
        if (own.empty() || own.back()->done()) {
          if (!own.empty() && !own.back()->ok() && own.back()->code() != 70) ++wrong;
          answered[i] = static_cast<int>(own.size());
          if (i == 0 && added < rounds && static_cast<int>(own.size()) > added * 2) {
            const auto index = worker.gateway->add_shard({"s", "mongodb://n:1/"}, {});
            if (index.value() > 3) worker.gateway->retire_shard(static_cast<std::uint16_t>(*index - 3));
            ++added;
          }
          shards = std::max(shards, added.load());
          own.push_back(worker.start(ping, {}, static_cast<std::uint16_t>(shards)));
          if (worker.gateway->states().size() <= static_cast<std::size_t>(shards)) ++wrong;
        }
        if (worker.loop.poll_until_idle() == 0) ++idle[i];
        std::this_thread::yield();
      }
    });
  }
  std::thread reader([&] {
    while (!stop) {
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t shard = 0;; ++shard) {
          const CallCounts* counts = cluster.each[i]->gateway->call_counts(shard);
          if (counts == nullptr) break;
          if (counts->round_trips.read().total() > 1'000'000) ++wrong;
        }
      }
      std::this_thread::yield();
    }
  });
  const auto all_done = [&] {
    return added == rounds && std::all_of(answered.begin(), answered.end(), [&](const auto& n) { return n > rounds; });
  };
  for (std::array<std::uint64_t, count> seen{}; !all_done();) {
    bool all_idle = true;
    for (std::size_t i = 0; i < count; ++i) all_idle = all_idle && idle[i] > seen[i] + 1;
    if (all_idle) {
      for (std::size_t i = 0; i < count; ++i) seen[i] = idle[i];
      advance_time(1ms);
    }
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  reader.join();
  CHECK(wrong == 0);
  CHECK(cluster.gateway(2).states().size() == 1 + rounds);
}
