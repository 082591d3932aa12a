// Any text as a configuration: it is taken or refused with reasons, and what was taken differs from itself in nothing.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "proxy/config/config.h"
#include "proxy/config/reload_plan.h"

namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  if (size > 20'000) return 0;
  const std::string text(reinterpret_cast<const char*>(data), size);
  // Files that a configuration names are read: not devices, which may have no end.
  if (text.find("/dev") != std::string::npos || text.find("/proc") != std::string::npos) return 0;
  const LoadResult loaded = load_config({.text = text, .file_name = "input"});
  for (const std::string& error : loaded.errors) expect(!error.empty());
  if (!loaded.ok()) return 0;
  const LoadResult again = load_config({.text = text, .file_name = "input"});
  expect(again.ok());
  const ReloadPlan plan = plan_reload(loaded.config, loaded.routing.get(), again);
  expect(plan.refusals.empty() && plan.changed.empty() && !plan.routing);
  return 0;
}
