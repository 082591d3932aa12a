#include "tests/support/sim_cluster.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::test {

SimCluster::SimCluster(const SimClusterOptions& options, SimLog& log) : log_(log), config_(options.wire_version) {
  for (std::size_t i = 0; i < options.config_members; ++i) {
    config_roles_.push_back(std::make_unique<ConfigRole>(config_));
    SimShardOptions server;
    server.host = fmt::format("config-{}", i);
    server.port = 27019;
    server.set_name = "config";
    server.max_wire_version = options.wire_version;
    add_server(server, config_set_, *config_roles_.back());
  }
  for (std::size_t i = 0; i < options.shards; ++i) {
    const std::string id = fmt::format("sh{}", i);
    const auto& of_shards = options.shard_wire_versions;
    SimShardOptions server;
    server.max_wire_version = i < of_shards.size() ? of_shards[i] : options.wire_version;
    server.set_name = id;
    server.sort_keys = server.max_wire_version >= wire_4_4 ? SimShardOptions::SortKeys::array
                                                           : SimShardOptions::SortKeys::object;
    shards_.push_back(std::make_unique<Shard>());
    Shard& shard = *shards_.back();
    shard.id = id;
    for (std::size_t member = 0; member < options.members; ++member) {
      server.host = fmt::format("{}-{}", id, member);
      server.port = static_cast<std::uint16_t>(27100 + 10 * i + member);
      shard.roles.push_back(std::make_unique<ShardRole>(id, server.max_wire_version, config_));
      add_server(server, shard.set, *shard.roles.back());
      servers_.back()->find_shard = [this](std::string_view name) {
        return &primary(index_of(std::string(name)));
      };
    }
    config_.add_shard(id, id + "/" + hosts_of(shard.set));
  }
}

void SimCluster::add_server(SimShardOptions options, SimSet& set, SimRole& role) {
  SimShard* const first = set.members.empty() ? nullptr : set.members.front();
  servers_.push_back(std::make_unique<SimShard>(std::move(options), log_, first));
  servers_.back()->join(set);
  servers_.back()->play(role);
}

std::string SimCluster::hosts_of(const SimSet& set) const {
  std::string hosts;
  for (const SimShard* each : set.members) {
    hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", each->options().host, each->options().port);
  }
  return hosts;
}

void SimCluster::attach(SimNetwork& network) {
  for (const auto& server : servers_) server->attach(network);
}

std::vector<SimShard*> SimCluster::servers() {
  std::vector<SimShard*> all;
  for (const auto& server : servers_) all.push_back(server.get());
  return all;
}

ShardRole& SimCluster::primary_role(std::size_t index) {
  const SimSet& set = shards_[index]->set;
  const auto at = std::find(set.members.begin(), set.members.end(), set.primary);
  return *shards_[index]->roles[static_cast<std::size_t>(at - set.members.begin())];
}

void SimCluster::elect(std::size_t index, std::size_t member) {
  Shard& shard = *shards_[index];
  log_.add(fmt::format("{} elects {}", shard.id, shard.set.members[member]->options().host));
  primary(index).abort_transactions();
  shard.roles[member]->take_over(primary_role(index));
  shard.set.elect(*shard.set.members[member]);
}

std::size_t SimCluster::index_of(const std::string& shard) const {
  const auto at =
      std::find_if(shards_.begin(), shards_.end(), [&](const auto& each) { return each->id == shard; });
  return static_cast<std::size_t>(at - shards_.begin());
}

void SimCluster::create_database(const std::string& db, std::size_t primary) {
  config_.create_database(db, shards_[primary]->id);
}

void SimCluster::shard_collection(const std::string& ns, DocView key, const std::vector<BsonDoc>& points) {
  config_.shard_collection(ns, key, points, config_.shards());
  for (std::size_t i = 0; i < shards_.size(); ++i) primary_role(i).learn(ns);
}

void SimCluster::drop(const std::string& ns) {
  log_.add("drop " + ns);
  if (config_.collection(ns)) config_.drop(ns);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    primary_role(i).drop(ns);
    primary_role(i).learn(ns);
    primary(i).remove(ns, [](DocView) { return true; });
  }
}

void SimCluster::store(const std::string& ns, BsonDoc document) {
  const auto collection = config_.collection(ns);
  const std::string owner = collection ? collection->chunks[collection->chunk_of(document)].shard
                                       : config_.database(ns.substr(0, ns.find('.')))->primary;
  primary_role(index_of(owner)).create(ns);
  primary(index_of(owner)).store(ns, std::move(document));
}

std::vector<BsonDoc> SimCluster::owned(const std::string& ns) {
  std::vector<BsonDoc> all;
  const auto collection = config_.collection(ns);
  const auto database = config_.database(ns.substr(0, ns.find('.')));
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const std::string& id = shards_[i]->id;
    for (const BsonDoc& each : primary(i).stored(ns)) {
      if (collection ? collection->owns(id, each) : database && database->primary == id) all.push_back(each);
    }
  }
  return all;
}

std::size_t SimCluster::orphans(const std::string& ns) {
  std::size_t all = 0;
  for (std::size_t i = 0; i < shards_.size(); ++i) all += primary(i).stored(ns).size();
  return all - owned(ns).size();
}

void SimCluster::move(const std::string& ns, DocView key, std::size_t to) {
  const auto before = config_.collection(ns);
  const std::size_t chunk = before->chunk_of(key);
  const std::size_t from = index_of(before->chunks[chunk].shard);
  if (from == to) return;
  log_.add(fmt::format("move chunk {} of {} to {}", chunk, ns, shards_[to]->id));
  primary(from).abort_transactions();
  const auto of_chunk = [&](DocView document) { return before->chunk_of(document) == chunk; };
  primary(to).remove(ns, of_chunk);
  for (const BsonDoc& each : primary(from).stored(ns)) {
    if (of_chunk(each)) primary(to).store(ns, each);
  }
  primary(to).take_history(primary(from));
  config_.move(ns, chunk, shards_[to]->id);
  primary_role(from).learn(ns);
  // From 6.0 on the recipient has a critical section, too, and looks before it leaves it.
  if (primary(to).options().max_wire_version >= wire_6_0) primary_role(to).learn(ns);
  for (const std::size_t each : {from, to}) primary_role(each).hear(config_.time());
}

Task<void> SimCluster::move_slowly(Loop& loop, std::string ns, BsonDoc key, std::size_t to, Duration critical) {
  const auto collection = config_.collection(ns);
  ShardRole& donor = primary_role(index_of(collection->chunks[collection->chunk_of(key)].shard));
  donor.enter_critical_section(ns);
  co_await loop.sleep_for(critical);
  if (config_.collection(ns)) move(ns, key, to);
  donor.leave_critical_section(ns);
}

void SimCluster::move_primary(const std::string& db, std::size_t to) {
  const std::size_t from = index_of(config_.database(db)->primary);
  if (from == to) return;
  log_.add(fmt::format("move primary of {} to {}", db, shards_[to]->id));
  for (const std::string& ns : primary(from).stored_names()) {
    if (!ns.starts_with(db + ".") || config_.collection(ns)) continue;
    for (const BsonDoc& each : primary(from).stored(ns)) primary(to).store(ns, each);
    primary(from).remove(ns, [](DocView) { return true; });
    primary_role(from).drop(ns);
    primary_role(to).create(ns);
  }
  primary(from).abort_transactions();
  primary(to).take_history(primary(from));
  config_.move_primary(db, shards_[to]->id);
  primary_role(from).learn_database(db);
  for (const std::size_t each : {from, to}) primary_role(each).hear(config_.time());
}

void SimCluster::delete_orphans(const std::string& ns) {
  const auto collection = config_.collection(ns);
  for (std::size_t i = 0; collection && i < shards_.size(); ++i) {
    const std::string& id = shards_[i]->id;
    primary(i).remove(ns, [&](DocView each) { return !collection->owns(id, each); });
  }
}

void SimCluster::churn(std::mt19937_64& random) {
  const auto names = config_.sharded();
  if (names.empty()) return;
  const std::string& ns = names[random() % names.size()];
  const auto collection = config_.collection(ns);
  const std::size_t chunk = random() % collection->chunks.size();
  const std::size_t to = random() % shards_.size();
  switch (random() % 6) {
    case 0: {
      const auto documents = owned(ns);
      if (documents.empty()) return;
      const BsonDoc at = collection->key.key_values_of_document(documents[random() % documents.size()]).value();
      const auto is_bound = [&](const SimChunk& each) { return to_json(each.min.view()) == to_json(at.view()); };
      if (std::any_of(collection->chunks.begin(), collection->chunks.end(), is_bound)) return;
      return split(ns, at);
    }
    case 1:
      if (chunk + 1 == collection->chunks.size()) return;
      if (collection->chunks[chunk].shard == collection->chunks[chunk + 1].shard) config_.merge(ns, chunk);
      return;
    case 2:
      return delete_orphans(ns);
    case 3:
      return move_primary(ns.substr(0, ns.find('.')), to);
    default: {
      const auto documents = owned(ns);
      if (!documents.empty()) move(ns, documents[random() % documents.size()], to);
    }
  }
}

}  // namespace spillway::test
