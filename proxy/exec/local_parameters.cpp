#include "proxy/exec/local_parameters.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "allocator/memory_layer.h"
#include "proxy/base/log.h"
#include "proxy/exec/rate_limiter.h"
#include "proxy/exec/request.h"

namespace spillway::exec {

namespace {

// One setting: how it is read, and how it is changed (null: fixed at start).
struct Parameter {
  std::string_view name;
  void (*append)(BsonWriter& out, const Context& context);
  Result<void> (*set)(Context& context, ValueView value);
};

Result<std::int64_t> whole(std::string_view name, ValueView value, std::int64_t low, std::int64_t high) {
  const auto number = value.to_int64();
  if (!number) {
    return Error(ErrorCode::bad_value, fmt::format("{} takes a whole number, not {}", name, to_json(value)));
  }
  if (*number < low || *number > high) {
    return Error(ErrorCode::bad_value, fmt::format("Invalid value for parameter {}: {} is not between {} and {}", name,
                                                   *number, low, high));
  }
  return *number;
}

Result<void> store(std::atomic<std::int64_t>& into, std::string_view name, ValueView value, std::int64_t low,
                   std::int64_t high) {
  auto number = whole(name, value, low, high);
  if (number.has_error()) return number.error();
  into = *number;
  return {};
}

constexpr std::int64_t any_ms = std::numeric_limits<std::int64_t>::max() / 2'000'000;

Result<void> store_number(std::atomic<double>& into, std::string_view name, ValueView value) {
  const auto number = value.to_double();
  if (!number || !(*number > 0)) {
    return Error(ErrorCode::bad_value, fmt::format("Invalid value for parameter {}: it takes a number above 0, not {}", name, to_json(value)));
  }
  into = *number;
  return {};
}

void append_ranges(BsonWriter& out, std::string_view name, const AddressList& list) {
  out.begin_document(name).begin_array("ranges");
  for (const AddressRange& range : list.ranges()) out.append_item(std::string_view(range.text));
  out.end().end();
}

// {ranges: ["10.0.0.0/8"]}; {} is none.
Result<void> store_ranges(AddressList& into, std::string_view name, ValueView value) {
  const auto wrong = [&] {
    return Error(ErrorCode::bad_value, fmt::format("{} takes {{ranges: [addresses and ranges of them]}}, not {}", name, to_json(value)));
  };
  if (!value.is_document()) return wrong();
  const ValueView list = value.as_document()["ranges"];
  if (list.exists() ? !list.is_array() : value.as_document().count() != 0) return wrong();
  std::vector<AddressRange> ranges;
  if (list.exists()) {
    for (const Element& one : list.as_document()) {
      auto range = one.is_string() ? AddressRange::parse(one.as_string()) : std::nullopt;
      if (!range) return wrong();
      ranges.push_back(*std::move(range));
    }
  }
  into.set(std::move(ranges));
  return {};
}

constexpr std::array<Parameter, 24> parameters = {{
    {"clientCursorMonitorFrequencySecs",
     [](BsonWriter& out, const Context& c) {
       out.append("clientCursorMonitorFrequencySecs", c.shared.parameters.cursor_monitor_frequency_secs.load());
     },
     [](Context& c, ValueView v) {
       return store(c.shared.parameters.cursor_monitor_frequency_secs, "clientCursorMonitorFrequencySecs", v, 1,
                    86'400);
     }},
    {"cursorOrphanGraceMillis",
     [](BsonWriter& out, const Context& c) {
       out.append("cursorOrphanGraceMillis", c.shared.parameters.orphan_grace_ms.load());
     },
     [](Context& c, ValueView v) {
       return store(c.shared.parameters.orphan_grace_ms, "cursorOrphanGraceMillis", v, -1, any_ms);
     }},
    {"cursorReadAhead",
     [](BsonWriter& out, const Context& c) {
       out.append("cursorReadAhead", c.shared.parameters.read_ahead.load());
     },
     [](Context& c, ValueView v) -> Result<void> {
       c.shared.parameters.read_ahead = v.truthy();
       return {};
     }},
    {"cursorTimeoutMillis",
     [](BsonWriter& out, const Context& c) {
       out.append("cursorTimeoutMillis", c.shared.parameters.cursor_timeout_ms.load());
     },
     [](Context& c, ValueView v) {
       return store(c.shared.parameters.cursor_timeout_ms, "cursorTimeoutMillis", v, -1, any_ms);
     }},
    {"enableTestCommands",
     [](BsonWriter& out, const Context& c) {
       out.append("enableTestCommands", std::int32_t{c.shared.parameters.test_commands});
     },
     nullptr},
    {"enableTimeoutOfInactiveSessionCursors",
     [](BsonWriter& out, const Context& c) {
       out.append("enableTimeoutOfInactiveSessionCursors", c.shared.parameters.timeout_of_session_cursors.load());
     },
     [](Context& c, ValueView v) -> Result<void> {
       c.shared.parameters.timeout_of_session_cursors = v.truthy();
       return {};
     }},
    {"featureCompatibilityVersion",
     [](BsonWriter& out, const Context&) {
       out.begin_document("featureCompatibilityVersion").append("version", "7.0").end();
     },
     nullptr},
    {"ingressConnectionEstablishmentBurstCapacitySecs",
     [](BsonWriter& out, const Context& c) { out.append("ingressConnectionEstablishmentBurstCapacitySecs", c.shared.connection_rate->burst_seconds.load()); },
     [](Context& c, ValueView v) { return store_number(c.shared.connection_rate->burst_seconds, "ingressConnectionEstablishmentBurstCapacitySecs", v); }},
    {"ingressConnectionEstablishmentMaxQueueDepth",
     [](BsonWriter& out, const Context& c) { out.append("ingressConnectionEstablishmentMaxQueueDepth", c.shared.connection_rate->queue_max.load()); },
     [](Context& c, ValueView v) { return store(c.shared.connection_rate->queue_max, "ingressConnectionEstablishmentMaxQueueDepth", v, 0, 1'000'000); }},
    {"ingressConnectionEstablishmentRatePerSec",
     [](BsonWriter& out, const Context& c) { out.append("ingressConnectionEstablishmentRatePerSec", c.shared.connection_rate->per_second.load()); },
     [](Context& c, ValueView v) { return store(c.shared.connection_rate->per_second, "ingressConnectionEstablishmentRatePerSec", v, 1, 2'147'483'647); }},
    {"ingressConnectionEstablishmentRateLimiterBypass",
     [](BsonWriter& out, const Context& c) { append_ranges(out, "ingressConnectionEstablishmentRateLimiterBypass", c.shared.connection_rate->exempt); },
     [](Context& c, ValueView v) { return store_ranges(c.shared.connection_rate->exempt, "ingressConnectionEstablishmentRateLimiterBypass", v); }},
    {"ingressConnectionEstablishmentRateLimiterEnabled",
     [](BsonWriter& out, const Context& c) { out.append("ingressConnectionEstablishmentRateLimiterEnabled", c.shared.connection_rate->enabled.load()); },
     [](Context& c, ValueView v) -> Result<void> {
       c.shared.connection_rate->enabled = v.truthy();
       return {};
     }},
    {"ingressRequestAdmissionBurstCapacitySecs",
     [](BsonWriter& out, const Context& c) { out.append("ingressRequestAdmissionBurstCapacitySecs", c.shared.request_rate->burst_seconds.load()); },
     [](Context& c, ValueView v) { return store_number(c.shared.request_rate->burst_seconds, "ingressRequestAdmissionBurstCapacitySecs", v); }},
    {"ingressRequestAdmissionRatePerSec",
     [](BsonWriter& out, const Context& c) { out.append("ingressRequestAdmissionRatePerSec", c.shared.request_rate->per_second.load()); },
     [](Context& c, ValueView v) { return store(c.shared.request_rate->per_second, "ingressRequestAdmissionRatePerSec", v, 1, 2'147'483'647); }},
    {"ingressRequestRateLimiterEnabled",
     [](BsonWriter& out, const Context& c) { out.append("ingressRequestRateLimiterEnabled", c.shared.request_rate->enabled.load()); },
     [](Context& c, ValueView v) -> Result<void> {
       c.shared.request_rate->enabled = v.truthy();
       return {};
     }},
    {"ingressRequestRateLimiterExemptions",
     [](BsonWriter& out, const Context& c) { append_ranges(out, "ingressRequestRateLimiterExemptions", c.shared.request_rate->exempt); },
     [](Context& c, ValueView v) { return store_ranges(c.shared.request_rate->exempt, "ingressRequestRateLimiterExemptions", v); }},
    {"logLevel",
     [](BsonWriter& out, const Context& c) {
       out.append("logLevel", static_cast<std::int32_t>(c.shared.parameters.log_level.load()));
     },
     [](Context& c, ValueView v) -> Result<void> {
       auto level = whole("logLevel", v, 0, 5);
       if (level.has_error()) return level.error();
       c.shared.parameters.log_level = *level;
       log::set_verbosity(static_cast<int>(*level));
       return {};
     }},
    {"memoryAllocator",
     [](BsonWriter& out, const Context& c) {
       out.append("memoryAllocator", allocator_choice_name(c.shared.memory_layer->choice()));
     },
     [](Context& c, ValueView v) -> Result<void> {
       const auto choice = v.is_string() ? find_allocator_choice(v.as_string()) : std::nullopt;
       if (!choice) {
         return Error(ErrorCode::bad_value,
                      fmt::format("memoryAllocator takes \"auto\", \"jemalloc\", \"tcmalloc\" or \"system\", not {}",
                                  to_json(v)));
       }
       if (const auto missing = c.shared.memory_layer->choose(*choice)) {
         return Error(ErrorCode::bad_value, "memoryAllocator: " + *missing);
       }
       return {};
     }},
    {"mongosShutdownTimeoutMillisForSignaledShutdown",
     [](BsonWriter& out, const Context& c) {
       out.append("mongosShutdownTimeoutMillisForSignaledShutdown", c.shared.parameters.shutdown_timeout_ms.load());
     },
     [](Context& c, ValueView v) {
       return store(c.shared.parameters.shutdown_timeout_ms, "mongosShutdownTimeoutMillisForSignaledShutdown", v, 0,
                    3'600'000);
     }},
    {"quiet", [](BsonWriter& out, const Context&) { out.append("quiet", !log::enabled(log::Level::info)); }, nullptr},
    {"requireApiVersion", [](BsonWriter& out, const Context&) { out.append("requireApiVersion", false); }, nullptr},
    {"spliceReplies",
     [](BsonWriter& out, const Context& c) {
       out.append("spliceReplies", splice_replies_name(c.shared.parameters.splice_replies.load()));
     },
     [](Context& c, ValueView v) -> Result<void> {
       const auto wanted = v.is_string() ? find_splice_replies(v.as_string()) : std::nullopt;
       if (!wanted) {
         return Error(ErrorCode::bad_value,
                      fmt::format("spliceReplies takes \"auto\", \"always\" or \"never\", not {}", to_json(v)));
       }
       c.shared.parameters.splice_replies = *wanted;
       return {};
     }},
    {"authenticationMechanisms",
     [](BsonWriter& out, const Context&) {
       out.begin_array("authenticationMechanisms");
       for (const char* name : {"SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-X509"}) out.append_item(name);
       out.end();
     },
     nullptr},
    {"userCacheInvalidationIntervalSecs",
     [](BsonWriter& out, const Context& c) {
       out.append("userCacheInvalidationIntervalSecs", c.shared.parameters.user_refresh_secs.load());
     },
     [](Context& c, ValueView v) {
       return store(c.shared.parameters.user_refresh_secs, "userCacheInvalidationIntervalSecs", v, 1, 86'400);
     }},
}};

const Parameter* find_parameter(std::string_view name) {
  for (const Parameter& parameter : parameters) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

bool is_argument(std::string_view name) {
  return !is_generic_argument(name) && !is_stripped_from_request(name) && name != "getParameter" &&
         name != "setParameter";
}

}  // namespace

Result<BsonDoc> get_parameters(Context& context, DocView command) {
  const Element first = command.first();
  const bool all = (first.is_string() && first.as_string() == "*") ||
                   (first.is_document() && first.as_document()["allParameters"].truthy());
  BsonWriter reply;
  bool any = all;
  for (const Parameter& parameter : parameters) {
    if (!all && !command[parameter.name].exists()) continue;
    parameter.append(reply, context);
    any = true;
  }
  if (!any) return Error(ErrorCode::invalid_options, "no option found to get");
  reply.append("ok", 1.0);
  return std::move(reply).finish();
}

Result<BsonDoc> set_parameters(Context& context, DocView command) {
  bool any = false;
  for (auto at = command.begin(); !at.done(); ++at) {
    if (!is_argument(at->name)) continue;
    any = true;
    const Parameter* parameter = find_parameter(at->name);
    if (parameter == nullptr) {
      return Error(ErrorCode::invalid_options,
                   fmt::format("attempted to set unrecognized parameter [{}], use help:true to see options ", at->name));
    }
    if (parameter->set == nullptr) {
      return Error(ErrorCode::illegal_operation, fmt::format("not allowed to change [{}] at runtime", at->name));
    }
  }
  if (!any) return Error(ErrorCode::invalid_options, "no option found to set, use help:true to see options ");
  BsonWriter reply;
  bool first = true;
  for (auto at = command.begin(); !at.done(); ++at) {
    if (!is_argument(at->name)) continue;
    const Parameter* parameter = find_parameter(at->name);
    if (std::exchange(first, false)) {
      BsonWriter old;
      parameter->append(old, context);
      const BsonDoc value = std::move(old).finish();
      reply.append("was", ValueView(value.view().first()));
    }
    if (auto set = parameter->set(context, *at); set.has_error()) return set.error();
  }
  reply.append("ok", 1.0);
  return std::move(reply).finish();
}

}  // namespace spillway::exec
