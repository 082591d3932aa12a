#include "tests/sim/swarm.h"

#include <algorithm>
#include <map>

#include "tests/sim/swarm_run.h"

namespace spillway::test {

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
  for (int id = 0; id < static_cast<int>(setting_.shards) * sums_per_shard; ++id) {
    BsonWriter out;
    out.append("_id", id);
    world_.shard(static_cast<std::size_t>(id / sums_per_shard)).store("app.sums", std::move(out).finish());
  }
}

// --- what happens to the shards

Task<void> Swarm::chaos() {
  Dice dice(setting_.seed + 3);
  Loop& loop = world_.worker(0).loop();
  while (!ending_) {
    co_await loop.sleep_for(milliseconds(dice.between(50, 2000)));
    SimShard& shard = world_.shard(
        static_cast<std::size_t>(dice.between(0, static_cast<std::int64_t>(setting_.shards) - 1)));
    using Fault = SimShard::Fault;
    static const std::vector<Fault> faults = {Fault::not_primary,       Fault::cursor_not_found,
                                              Fault::wrong_response_to, Fault::garbage_length,
                                              Fault::cut_after,         Fault::cut_within};
    switch (setting_.lossy ? dice.between(0, setting_.replica_set ? 7 : 5) : 1) {
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
      case 2:
        shard.forget_cursors();
        break;
      case 6:
      case 7: {
        static const std::vector<std::int32_t> codes = {11602, 11602, 189, 10107, 91, 11600};
        shard.step_down(static_cast<std::size_t>(dice.between(0, 5)), dice.one_of(codes),
                        milliseconds(dice.between(10, 3000)));
        break;
      }
      default:
        shard.cut_at_bytes = static_cast<std::size_t>(dice.between(1, 400));
        shard.misbehave(dice.one_of(faults), "", static_cast<int>(dice.between(1, 3)));
    }
  }
  chaos_done_ = true;
}

std::unique_ptr<SimClient> Swarm::client(std::size_t worker) {
  return setting_.hoarder ? world_.client_of("ann", worker) : world_.client(worker);
}

// Names sessions without end, opens transactions and cursors, and ends none: all others are still served.
Task<void> Swarm::hoard() {
  Dice dice(setting_.seed + 6);
  const auto hoarder = world_.client_of("mallory");
  Loop& loop = world_.worker(0).loop();
  const auto append_session = [&dice](BsonWriter& out) {
    std::uint8_t id[16] = {0x80};
    store_le(id + 8, dice.seed());
    out.begin_document("lsid").append_binary("id", 4, id).end();
  };
  for (std::int32_t i = 0; i < 150 && !ending_; ++i) {
    BsonWriter out;
    const std::int64_t what = dice.between(0, 2);
    if (what == 0) {
      out.begin_array("refreshSessions");
      for (int each = 0; each < 100; ++each) {
        std::uint8_t id[16] = {0x80};
        store_le(id + 8, dice.seed());
        out.begin_document_item().append_binary("id", 4, id).end();
      }
      out.end().append("$db", "admin");
    } else if (what == 1) {
      out.append("find", "docs").append("batchSize", 1);
      append_session(out);
      out.append("$db", "app");
    } else {
      out.append("find", "docs").append("filter", json(R"({"_id": 1})"));
      append_session(out);
      out.append("txnNumber", std::int64_t{i}).append("autocommit", false).append("startTransaction", true);
      out.append("$db", "app");
    }
    auto calling = hoarder->call(std::move(out).finish());
    co_await calling;
    world_.log().add("the hoarder takes");
    co_await loop.sleep_for(milliseconds(dice.between(1, 100)));
  }
  hoarder->close();
  hoard_done_ = true;
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
    if (unwritten_.contains(id)) fail(fmt::format("{} was stored though its insert wrote nothing", id));
  }
  for (const std::string& id : acknowledged_) {
    if (!stored.contains(id)) fail(fmt::format("{} was acknowledged but is not stored", id));
  }
}

// No write counts a document twice, and one that was acknowledged has counted all of its documents.
void Swarm::check_sums() {
  std::map<std::string, std::set<std::int64_t>> counted;
  for (std::size_t i = 0; i < setting_.shards; ++i) {
    for (const BsonDoc& document : world_.shard(i).stored("app.sums")) {
      const std::int64_t id = document.view()["_id"].to_int64().value_or(-1);
      for (const Element& field : document.view()) {
        if (field.name == "_id") continue;
        const std::string name(field.name);
        counted[name].insert(id);
        if (field.to_int64() != 1)
          fail(fmt::format("{} counted _id {} {} times", name, id, field.to_int64().value_or(-1)));
      }
    }
  }
  for (const auto& [name, documents] : sums_) {
    if (documents && counted[name] != *documents) {
      fail(fmt::format("{} was acknowledged for {} documents, and counted {}", name, documents->size(),
                       counted[name].size()));
    }
  }
}

void Swarm::check_cursors() {
  for (std::size_t i = 0; i < setting_.shards; ++i) {
    const SimShard::CursorCounts cursors = world_.shard(i).cursors();
    // Where messages get lost, so may the ids of cursors and the orders to kill them.
    const std::uint64_t left =
        setting_.lossy || abandoned_ ? cursors.forgotten() : cursors.open();
    if (left != 0) {
      fail(fmt::format("{} of {} cursors of shard{} were left open", left, cursors.opened, i));
    }
  }
}

void Swarm::settle() {
  ending_ = true;
  FaultOptions calm;
  calm.seed = setting_.seed;
  world_.set_faults(calm);
  const auto all_done = [this] {
    return chaos_done_ && hoard_done_ && std::all_of(members_.begin(), members_.end(),
                                      [](const auto& each) { return each->done; });
  };
  for (std::size_t i = 0; i < setting_.shards; ++i) world_.shard(i).clear_faults();
  for (const auto& member : members_) member->first->pace_bytes = member->second->pace_bytes = 0;
  if (!world_.run_until(all_done, seconds(60))) {
    for (const auto& member : members_) {
      if (!member->done)
        fail(fmt::format("client {} still waits a minute after the last fault", member->index));
    }
  }
}

SwarmResult Swarm::run() {
  result_.seed = setting_.seed;
  result_.setting = describe(setting_);
  Dice dice(setting_.seed + 4);
  for (std::size_t i = 0; i < setting_.clients; ++i) {
    const std::size_t home = i % setting_.workers;
    members_.push_back(
        std::make_unique<Member>(i, dice.seed(), client(home), client((home + 1) % setting_.workers)));
    Member& member = *members_.back();
    for (SimClient* client : {member.first.get(), member.second.get()}) {
      if (setting_.compresses && dice.percent(50)) {
        static const std::vector<wire::Compressor> compressors = {
            wire::Compressor::noop, wire::Compressor::snappy, wire::Compressor::zlib, wire::Compressor::zstd};
        client->compressor = dice.one_of(compressors);
      }
      if (setting_.slow_clients && dice.percent(50)) {
        client->pace_bytes = static_cast<std::size_t>(dice.between(8'000, 100'000));
        client->pace_pause = milliseconds(dice.between(1, 400));
      }
    }
  }
  world_.on_step = [this] {
    for (std::string& line : world_.exceeded()) {
      if (exceeded_.insert(line).second) fail(std::move(line));
    }
  };
  world_.spawn(chaos());
  hoard_done_ = !setting_.hoarder;
  if (setting_.hoarder) {
    // Small enough to be full in the first seconds.
    world_.shared().session_owners.set_capacity(500);
    abandoned_ = true;  // its cursors
    world_.spawn(hoard());
  }
  for (const auto& member : members_) world_.spawn(live(member.get()));
  world_.run_until(
      [this] {
        return std::all_of(members_.begin(), members_.end(),
                           [](const auto& each) { return each->done; });
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
  check_sums();
  check_cursors();
  // A client that still waits is waited for, so that its failure can be told.
  if (!world_.shut_down()) fail("the workers did not stop");
  return std::move(result_);
}

SwarmResult run_swarm(std::uint64_t seed) {
  Swarm swarm(draw_setting(seed));
  return swarm.run();
}

}  // namespace spillway::test
