#include "proxy/exec/core/fail_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "proxy/base/log.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/context.h"
#include "proxy/shard/waiter.h"

namespace spillway::exec {

namespace {

using Plan = FailCommand::Plan;

constexpr std::string_view refusal_text = "Failing command as the fail point failCommand wants it";

// isMaster and ismaster, dropIndexes and deleteIndexes: one command of two names.
bool same_command(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  const auto usual = [](std::string_view name) { return name == "deleteIndexes" ? "dropIndexes" : name; };
  return std::ranges::equal(usual(a), usual(b), {}, lower, lower);
}

std::string ns_of(const FailSubject& subject) {
  const ValueView collection =
      subject.name == "getMore" ? subject.body["collection"] : ValueView(subject.body.first());
  if (!collection.is_string()) return std::string(subject.db);
  return fmt::format("{}.{}", subject.db, collection.as_string());
}

bool concerns(const Plan& plan, const Client& client, const FailSubject& subject) {
  if (subject.name == "configureFailPoint") return false;
  if (!plan.application.empty() && plan.application != client.application_name) return false;
  if (!plan.thread.empty() && plan.thread != fmt::format("conn{}", client.connection_id)) return false;
  if (!plan.internal_clients && client.internal) return false;
  if (!plan.ns.empty() && plan.ns != ns_of(subject)) return false;
  return plan.all_commands || std::ranges::any_of(plan.commands, [&](std::string_view name) {
           return same_command(name, subject.name);
         });
}

std::string bytes_of(ValueView value) {
  if (!value.is_document()) return {};
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

std::vector<std::string> texts_of(ValueView list) {
  std::vector<std::string> texts;
  for (const Element& one : list.to_array()) {
    if (one.is_string()) texts.emplace_back(one.as_string());
  }
  return texts;
}

bool is_true(ValueView value) { return value.type == BsonType::boolean && value.as_bool(); }

// Unknown fields are ignored, as by other routers.
Result<Plan> read_plan(ValueView data) {
  Plan plan;
  if (!data.exists()) return plan;
  if (!data.is_document() && !data.is_array())
    return Error(ErrorCode::type_mismatch, "the 'data' option must be a JSON object");
  if (data.bytes.size() > FailCommand::data_bytes_max) {
    return Error(ErrorCode::bad_value, fmt::format("the 'data' option must not exceed {} bytes",
                                                   FailCommand::data_bytes_max));
  }
  const DocView fields = data.as_document();
  plan.commands = texts_of(fields["failCommands"]);
  plan.all_commands = fields["failAllCommands"].exists();
  plan.application = fields["appName"].to_text();
  plan.thread = fields["threadName"].to_text();
  plan.ns = fields["namespace"].to_text();
  plan.internal_clients = is_true(fields["failInternalCommands"]);
  plan.closes = is_true(fields["closeConnection"]);
  if (const auto code = fields["errorCode"].to_int64(); code && *code != 0)
    plan.code = static_cast<std::int32_t>(*code);
  plan.extra = bytes_of(fields["errorExtraInfo"]);
  if (fields["errorLabels"].is_array()) plan.labels = texts_of(fields["errorLabels"]);
  plan.write_concern_error = bytes_of(fields["writeConcernError"]);
  if (is_true(fields["blockConnection"])) {
    const auto time = fields["blockTimeMS"].to_int64();
    if (!time) return Error(ErrorCode::invalid_options, "must specify 'blockTimeMS' when 'blockConnection' is true");
    if (*time < 0) return Error(ErrorCode::invalid_options, "'blockTimeMS' must be non-negative");
    plan.blocks = std::chrono::milliseconds(std::min<std::int64_t>(*time, std::numeric_limits<std::int32_t>::max()));
  }
  return plan;
}

Result<std::int64_t> read_count(std::string_view name, ValueView value) {
  if (!value.is_number()) {
    return Error(ErrorCode::type_mismatch, fmt::format("\"{}\" had the wrong type. Expected number, found {}", name,
                                                       bson_type_name(value.type)));
  }
  const auto count = value.to_int64();
  if (!count)
    return Error(ErrorCode::bad_value, fmt::format("Expected field \"{}\" to have a value exactly representable as a "
                                                   "64-bit integer", name));
  if (*count < 0) return Error(ErrorCode::bad_value, fmt::format("'{}' option to 'mode' must be positive", name));
  if (*count > std::numeric_limits<std::int32_t>::max())
    return Error(ErrorCode::bad_value, fmt::format("'{}' option to 'mode' is too large", name));
  return *count;
}

}  // namespace

Result<void> FailCommand::set_mode(ValueView mode) {
  if (!mode.exists())
    return Error(ErrorCode::illegal_operation, "When setting a failpoint, you must supply a 'mode'");
  if (mode.is_string()) {
    if (mode.as_string() != "off" && mode.as_string() != "alwaysOn")
      return Error(ErrorCode::bad_value, fmt::format("unknown mode: {}", mode.as_string()));
    mode_ = mode.as_string() == "off" ? Mode::off : Mode::always;
    return {};
  }
  if (!mode.is_document()) return Error(ErrorCode::type_mismatch, "'mode' must be a string or JSON object");
  const DocView fields = mode.as_document();
  for (const auto& [name, counted] : {std::pair("times", Mode::times), std::pair("skip", Mode::skip)}) {
    if (!fields[name].exists()) continue;
    SPILLWAY_TRY(count, read_count(name, fields[name]));
    mode_ = counted;
    left_ = *count;
    return {};
  }
  const ValueView probability = fields["activationProbability"];
  if (!probability.exists()) {
    return Error(ErrorCode::bad_value,
                 "'mode' must be one of 'off', 'alwaysOn', 'times', 'skip' and 'activationProbability'");
  }
  const auto value = probability.to_double();
  if (!value) {
    return Error(ErrorCode::type_mismatch,
                 "the 'activationProbability' option to 'mode' must be a double between 0 and 1");
  }
  if (!(*value >= 0 && *value <= 1)) {
    return Error(ErrorCode::bad_value,
                 fmt::format("activationProbability must be between 0.0 and 1.0; found {}", *value));
  }
  mode_ = Mode::random;
  probability_ = *value;
  return {};
}

Result<std::int64_t> FailCommand::configure(DocView command) {
  SPILLWAY_TRY(plan, read_plan(command["data"]));
  if (!only_.empty()) plan->commands = {only_};
  const MutexLock lock(mutex_);
  if (auto set = set_mode(command["mode"]); set.has_error()) return set.error();
  plan_ = std::make_shared<const Plan>(*std::move(plan));
  on_.store(mode_ != Mode::off, std::memory_order_relaxed);
  log::warning("fail point {}: mode {}, data {}", to_json(command.first()), to_json(command["mode"]),
               to_json(command["data"]));
  return met_;
}

std::int64_t FailCommand::met() const {
  const MutexLock lock(mutex_);
  return met_;
}

bool FailCommand::passes() {
  switch (mode_) {
    case Mode::off:
      return false;
    case Mode::always:
      return true;
    case Mode::times:
      if (--left_ <= 0) {
        mode_ = Mode::off;
        on_.store(false, std::memory_order_relaxed);
      }
      return true;
    case Mode::skip:
      return left_ <= 0 || --left_ < 0;
    case Mode::random:
      return std::generate_canonical<double, 32>(random_) < probability_;
  }
  return false;
}

template <class Wanted>
FailCommand::PlanPtr FailCommand::meet(const Client& client, const FailSubject& subject, Wanted wanted) {
  if (!on()) return nullptr;
  const MutexLock lock(mutex_);
  if (mode_ == Mode::off || !wanted(*plan_) || !concerns(*plan_, client, subject) || !passes()) return nullptr;
  ++met_;
  return plan_;
}

FailCommand::PlanPtr FailCommand::meet_before(const Client& client, const FailSubject& subject) {
  return meet(client, subject, [](const Plan& plan) { return plan.closes || plan.blocks || plan.code; });
}

FailCommand::PlanPtr FailCommand::meet_write_concern(const Client& client, const FailSubject& subject) {
  return meet(client, subject, [](const Plan& plan) { return !plan.write_concern_error.empty(); });
}

FailCommand::PlanPtr FailCommand::meet_always(const Client& client, const FailSubject& subject) {
  return meet(client, subject, [](const Plan&) { return true; });
}

Task<std::optional<PlannedFailure>> fail_as_planned(Context& context, Client& client, FailSubject subject,
                                                    TimePoint deadline) {
  const FailCommand::PlanPtr plan = context.shared.fail_command.meet_before(client, subject);
  if (!plan) co_return std::nullopt;
  PlannedFailure failure;
  if (plan->blocks) {
    log::debug("failCommand: {} of connection {} waits {} ms", subject.name, client.connection_id,
               std::chrono::duration_cast<std::chrono::milliseconds>(*plan->blocks).count());
    auto pausing = pause_operation(context, client, Clock::now() + *plan->blocks, deadline);
    if (auto paused = co_await pausing; paused.has_error()) {
      failure.error = std::move(paused.error());
      co_return failure;
    }
  }
  if (!plan->closes && !plan->code) co_return std::nullopt;
  log::debug("failCommand: {} of connection {} {}", subject.name, client.connection_id,
             plan->closes ? "closes it" : fmt::format("gets code {}", *plan->code));
  failure.closes = plan->closes;
  if (plan->code) failure.error = Error(*plan->code, std::string(refusal_text));
  failure.error.extra = plan->extra;
  failure.labelled = plan->labels.has_value();
  if (plan->labels) failure.error.labels = *plan->labels;
  co_return failure;
}

Task<Result<void>> pause_operation(Context& context, Client& client, TimePoint until, TimePoint deadline) {
  {
    shard::Waiter waiter(context.loop, std::min(until, deadline));
    const shard::Interruptible interruptible(&client.interrupt, waiter);
    co_await waiter;
  }
  if (const Error* why = client.interrupt.requested()) co_return *why;
  if (deadline < until) co_return time_limit_exceeded();
  co_return Result<void>();
}

}  // namespace spillway::exec
