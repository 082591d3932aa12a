#include "proxy/exec/admin/local_parameters.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "allocator/memory_layer.h"
#include "proxy/base/log.h"
#include "proxy/config/parameters.h"
#include "proxy/config/table.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

namespace {

constexpr std::string_view component_verbosity = "logComponentVerbosity";

void append_component_verbosity(BsonWriter& out, const Services& shared) {
  const std::int64_t level = shared.parameters.log_level.load();
  out.begin_document(component_verbosity).append("verbosity", static_cast<std::int32_t>(level)).end();
}

// The log has no components: the level of the whole is all that {verbosity: n, …} can set.
Result<ValueView> verbosity_of_whole(ValueView value) {
  if (!value.is_document()) return Error(ErrorCode::type_mismatch, "log component verbosity is not a BSON object");
  ValueView level;
  for (const Element& field : value.as_document()) {
    if (field.name != "verbosity") {
      return Error(ErrorCode::bad_value,
                   fmt::format("invalid component name {}: this log has no components, only a verbosity", field.name));
    }
    level = field;
  }
  if (!level.exists()) return Error(ErrorCode::bad_value, "log component verbosity has no verbosity");
  return level;
}

// Parameters that are read-only, but for logComponentVerbosity. All others are rows of the table of keys.
struct Fixed {
  std::string_view name;
  void (*append)(BsonWriter& out, const Services& shared);
};
constexpr std::array<Fixed, 6> fixed_parameters = {{
    // Of SCRAM users: mongodump asks before it reads users and roles.
    {"authSchemaVersion", [](BsonWriter& out, const Services&) { out.append("authSchemaVersion", std::int32_t{5}); }},
    {"authenticationMechanisms",
     [](BsonWriter& out, const Services&) {
       out.begin_array("authenticationMechanisms");
       for (const char* name : {"SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-X509"}) out.append_item(name);
       out.end();
     }},
    {"enableTestCommands",
     [](BsonWriter& out, const Services& s) {
       out.append("enableTestCommands", std::int32_t{s.parameters.test_commands});
     }},
    {component_verbosity, append_component_verbosity},
    {"quiet", [](BsonWriter& out, const Services&) { out.append("quiet", false); }},
    {"requireApiVersion", [](BsonWriter& out, const Services&) { out.append("requireApiVersion", false); }},
}};

void append_used(BsonWriter& out, const KeySpec& spec, const Services& shared) {
  const ConfigValue value = spec.used(shared.parameters);
  if (const auto* const on = std::get_if<bool>(&value)) {
    out.append(spec.parameter(), *on);
  } else if (spec.type == ValueType::choice) {
    out.append(spec.parameter(), config_value_text(spec, value));
  } else if (spec.facts.unit.empty()) {  // logLevel
    out.append(spec.parameter(), static_cast<std::int32_t>(std::get<std::int64_t>(value)));
  } else {
    out.append(spec.parameter(), std::get<std::int64_t>(value));
  }
}

const KeySpec* find_parameter(std::string_view name) {
  for (const KeySpec& spec : config_keys()) {
    if (!name.empty() && spec.parameter() == name) return &spec;
  }
  return nullptr;
}

// As the table reads it.
std::string text_of(const KeySpec& spec, ValueView value) {
  if (value.is_string()) return std::string(value.as_string());
  if (spec.type == ValueType::boolean) return value.truthy() ? "true" : "false";
  const auto number = value.to_int64();
  return number ? fmt::format("{}", *number) : to_json(value);
}

Result<void> change(const Services& shared, const KeySpec& spec, ValueView value) {
  SPILLWAY_TRY(parsed, parse_config_value(spec, text_of(spec, value), spec.parameter()));
  spec.use(shared.parameters, *parsed);
  if (const auto missing = take_parameters_into_use(shared)) {
    return Error(ErrorCode::bad_value, fmt::format("{}: {}", spec.parameter(), *missing));
  }
  return {};
}

bool is_argument(std::string_view name) {
  return !is_argument_of_any_command(name) && name != "getParameter" && name != "setParameter";
}

}  // namespace

std::optional<std::string> take_parameters_into_use(const Services& shared) {
  log::set_verbosity(static_cast<int>(shared.parameters.log_level.load()));
  const AllocatorChoice before = shared.memory_layer->choice(), wanted = shared.parameters.allocator.load();
  if (wanted == before) return std::nullopt;
  auto missing = shared.memory_layer->choose(wanted);
  if (missing) shared.parameters.allocator = before;
  return missing;
}

Result<BsonDoc> get_parameters(Context& context, DocView command) {
  const Element first = command.first();
  const bool all = (first.is_string() && first.as_string() == "*") ||
                   (first.is_document() && first.as_document()["allParameters"].truthy());
  BsonWriter reply;
  bool any = all;
  const auto wanted = [&](std::string_view name) { return !name.empty() && (all || command[name].exists()); };
  for (const KeySpec& spec : config_keys()) {
    if (!wanted(spec.parameter())) continue;
    append_used(reply, spec, context.shared);
    any = true;
  }
  for (const Fixed& fixed : fixed_parameters) {
    if (!wanted(fixed.name)) continue;
    fixed.append(reply, context.shared);
    any = true;
  }
  if (!any) return Error(ErrorCode::invalid_options, "no option found to get");
  return ok_document(std::move(reply));
}

Result<BsonDoc> set_parameters(Context& context, DocView command) {
  bool any = false;
  for (auto at = command.begin(); !at.done(); ++at) {
    if (!is_argument(at->name)) continue;
    any = true;
    if (find_parameter(at->name) != nullptr) continue;
    if (at->name == component_verbosity) {
      if (const auto level = verbosity_of_whole(*at); level.has_error()) return level.error();
      continue;
    }
    for (const Fixed& fixed : fixed_parameters) {
      if (fixed.name != at->name) continue;
      return Error(ErrorCode::illegal_operation, fmt::format("not allowed to change [{}] at runtime", at->name));
    }
    return Error(ErrorCode::invalid_options,
                 fmt::format("attempted to set unrecognized parameter [{}], use help:true to see options ", at->name));
  }
  if (!any) return Error(ErrorCode::invalid_options, "no option found to set, use help:true to see options ");
  BsonWriter reply;
  bool first = true;
  for (auto at = command.begin(); !at.done(); ++at) {
    if (!is_argument(at->name)) continue;
    const bool of_components = at->name == component_verbosity;
    const KeySpec& spec = *find_parameter(of_components ? "logLevel" : at->name);
    const ValueView wanted = of_components ? *verbosity_of_whole(*at) : ValueView(*at);
    if (std::exchange(first, false)) {
      BsonWriter old;
      if (of_components) {
        append_component_verbosity(old, context.shared);
      } else {
        append_used(old, spec, context.shared);
      }
      const BsonDoc value = std::move(old).finish();
      reply.append("was", ValueView(value.view().first()));
    }
    if (auto set = change(context.shared, spec, wanted); set.has_error()) return set.error();
  }
  return ok_document(std::move(reply));
}

}  // namespace spillway::exec
