// What a reload would change: pure, so that it can be refused before anything is touched.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proxy/catalog/routing.h"
#include "proxy/config/config.h"

namespace spillway {

struct ReloadPlan {
  // Why it is refused: the file's errors, or every key that changed and needs a restart. Empty: it may be applied.
  std::vector<std::string> refusals;
  std::vector<std::string_view> changed;  // keys of the configuration table that change, but for the routing
  bool routing = false;                   // the table changes

  bool changes(std::string_view section_or_key) const;
};

// `table`: the one in use; both it and the loaded one may be null (canned shards).
ReloadPlan plan_reload(const Config& now, const catalog::RoutingSnapshot* table, const LoadResult& loaded);

}  // namespace spillway
