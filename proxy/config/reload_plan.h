// The changes of a reload: pure, so that a reload can be refused before anything is touched.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proxy/catalog/routing.h"
#include "proxy/config/config.h"

namespace spillway {

struct ReloadPlan {
  // The reasons for refusal: the file's errors, or every changed key that needs a process that starts with it. Empty:
  // the reload may be applied.
  std::vector<std::string> refusals;
  std::vector<std::string_view> changed;  // keys of the configuration table that change, except the routing
  bool routing = false;                   // the table changes
  bool needs_start = false;               // refused, but a process that starts with it takes it

  bool changes(std::string_view section_or_key) const;
};

// `table`: the one in use; both it and the loaded one may be null (canned shards).
ReloadPlan plan_reload(const Config& now, const catalog::RoutingSnapshot* table, const LoadResult& loaded);

}  // namespace spillway
