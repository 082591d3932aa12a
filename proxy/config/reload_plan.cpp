#include "proxy/config/reload_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/catalog/routing_change.h"
#include "proxy/config/cluster.h"
#include "proxy/config/table.h"
#include "proxy/config/tls.h"

namespace spillway {

namespace {

std::string needs_start(std::string_view key) {
  return fmt::format("{} cannot be changed while the process runs", key);
}

bool same_shards(const catalog::RoutingSnapshot& a, const catalog::RoutingSnapshot& b) {
  return std::equal(
      a.shards().begin(), a.shards().end(), b.shards().begin(), b.shards().end(),
      [](const catalog::Shard& x, const catalog::Shard& y) { return x.name == y.name && x.uri == y.uri; });
}

// The servers' connection strings are made of it at start. New content of the same files is read by every reload.
bool same_cluster_tls(const TlsConfig& now, const TlsConfig& next) {
  const auto before = cluster_tls(now);
  const auto after = cluster_tls(next);
  return !before.has_error() && !after.has_error() && *before == *after;
}

void plan_routing(ReloadPlan& plan, const catalog::RoutingSnapshot& now, const catalog::RoutingSnapshot& next) {
  if (!same_shards(now, next)) plan.refusals.push_back(needs_start("routing.shards"));
  plan.routing = !catalog::same_routing(now, next);
}

}  // namespace

bool ReloadPlan::changes(std::string_view section_or_key) const {
  return std::any_of(changed.begin(), changed.end(), [&](std::string_view key) {
    return key == section_or_key || (key.starts_with(section_or_key) && key[section_or_key.size()] == '.');
  });
}

ReloadPlan plan_reload(const Config& now, const catalog::RoutingSnapshot* table, const LoadResult& loaded) {
  ReloadPlan plan;
  plan.refusals = loaded.errors;
  if (!plan.refusals.empty()) return plan;
  for (const KeySpec& spec : config_keys()) {
    if (spec.same == nullptr || spec.same(now, loaded.config)) continue;
    if (spec.change == Change::restart) plan.refusals.push_back(needs_start(spec.key));
    plan.changed.push_back(spec.key);
  }
  if (table != nullptr && loaded.routing) {
    plan_routing(plan, *table, *loaded.routing);
  } else if (table != nullptr || loaded.routing) {
    plan.refusals.push_back(needs_start("routing.shards"));
  }
  const bool in_cluster = !now.cluster.config_db.empty();
  if (in_cluster && !same_cluster_tls(now.net.tls, loaded.config.net.tls)) {
    plan.refusals.push_back(needs_start("net.tls, of what it says for the cluster's servers,"));
  }
  // What it sends to them depends on it.
  if (in_cluster && servers_trust(now) != servers_trust(loaded.config)) {
    plan.refusals.push_back(needs_start("whether the cluster's servers trust the router (security.keyFile, shards)"));
  }
  plan.needs_start = !plan.refusals.empty();
  // Two processes would write by two tables, and neither would look for stray documents.
  if (plan.needs_start && table != nullptr && loaded.routing && !catalog::same_owners(*table, *loaded.routing)) {
    plan.needs_start = false;
    plan.refusals.emplace_back("routing changes documents' shards, too: change that by a reload alone, or restart");
  }
  return plan;
}

}  // namespace spillway
