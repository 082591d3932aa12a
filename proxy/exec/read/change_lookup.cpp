#include "proxy/exec/read/change_lookup.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "cursor/resume_token.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/repeat.h"
#include "proxy/exec/core/stale.h"
#include "proxy/exec/read/find.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

constexpr std::uint8_t uuid_subtype = 4;

// The document that an event is of. Views into the event.
struct Changed {
  std::string_view db, collection;
  DocView key;
  std::string_view digits;  // of its token
  ResumeToken token;

  // Of its collection; nullopt: unknown.
  std::optional<std::array<std::uint8_t, 16>> uuid() const {
    if (token.document_key_at == 0) return std::nullopt;
    std::array<std::uint8_t, 16> bytes{};
    std::string_view hex = digits.substr(token.event_at + 6);  // after the type, the length and the subtype
    for (std::uint8_t& byte : bytes) {
      const auto parsed = std::from_chars(hex.data(), hex.data() + std::min<std::size_t>(hex.size(), 2), byte, 16);
      if (parsed.ptr != hex.data() + 2) return std::nullopt;
      hex.remove_prefix(2);
    }
    return bytes;
  }
};

std::optional<Changed> read_event(DocView event) {
  const ValueView ns = event["ns"], key = event["documentKey"];
  if (!ns.is_document() || !key.is_document()) return std::nullopt;
  const ValueView db = ns.as_document()["db"], collection = ns.as_document()["coll"];
  const std::string_view digits = token_digits(event["_id"]);
  const auto token = ResumeToken::parse(digits);
  if (!db.is_string() || !collection.is_string() || !token) return std::nullopt;
  return Changed{db.as_string(), collection.as_string(), key.as_document(), digits, *token};
}

// Is the sharded collection of that name still the event's?
bool is_same_collection(const Changed& changed, const catalog::CollectionRouting& routing) {
  if (!routing.cluster || !routing.cluster->uuid) return true;
  const auto uuid = changed.uuid();
  return !uuid || *uuid == *routing.cluster->uuid;
}

// `by_uuid`: an unsharded collection may have been dropped and made anew, and the router knows neither.
BsonDoc find_command(const Changed& changed, const Request& request, ValueView preference, bool by_uuid) {
  BsonWriter out;
  const auto uuid = by_uuid ? changed.uuid() : std::nullopt;
  if (uuid) {
    out.append_binary("find", uuid_subtype, *uuid);
  } else {
    out.append("find", changed.collection);
  }
  out.append("filter", changed.key);
  out.append("limit", 1).append("singleBatch", true);
  out.begin_document("readConcern").append("level", "majority");
  out.append_timestamp("afterClusterTime", changed.token.cluster_time).end();
  if (!request.lsid.empty()) out.append("lsid", request.lsid_document());
  out.append("$readPreference", preference).append("$db", changed.db);
  return std::move(out).finish();
}

// nullopt: there is none.
Result<std::optional<LookedUp>> found_in(ShardOutcomes& outcomes) {
  for (ShardOutcome& outcome : outcomes) {
    if (!outcome.ok()) {
      if (outcome.error->is(ErrorCode::namespace_not_found)) continue;
      return *std::move(outcome.error);
    }
    SPILLWAY_TRY(parsed, wire::parse_cursor_reply(outcome.body()));
    const Element first = parsed->batch.first();
    if (!first.is_document()) continue;
    if (first.as_document().validate().has_error()) return malformed_reply("a document");
    return LookedUp{std::move(outcome.reply), first.as_document()};
  }
  return std::nullopt;
}

}  // namespace

shard::CallOptions options_for_event(Context& context, const Request& request) {
  shard::CallOptions options = read_options(context, request);
  options.deadline = time_point_never;
  return options;
}

Task<Result<std::optional<LookedUp>>> look_up_changed(Context& context, const Request& request, DocView event,
                                                      ValueView preference) {
  const auto changed = read_event(event);
  if (!changed) {
    co_return Error(40578, "failed to look up post image after change: the event does not say of which document it is");
  }
  bool by_uuid = true;
  static const BsonDoc simple = [] {
    BsonWriter out;
    out.begin_document("collation").append("locale", "simple").end();
    return std::move(out).finish();
  }();
  const RouteNames names{{changed->db, changed->collection}};
  const shard::CallOptions options = options_for_event(context, request);
  for (std::size_t tries = 1;; ++tries) {
    auto routes = context.router->resolve(names);
    if (!routes) {
      auto learning = learn_routes(*context.router, names, {.interrupt = request.interrupt});
      auto learned = co_await learning;
      if (learned.has_error() && learned.error().is(ErrorCode::namespace_not_found)) co_return std::nullopt;
      if (learned.has_error()) co_return std::move(learned.error());
      routes = *std::move(learned);
    }
    Request of_event;
    of_event.db = changed->db;
    of_event.routes = &*routes;
    // By its very key, whatever the collection's default collation takes for equal.
    SPILLWAY_CO_TRY(targets, read_targets(of_event, changed->db, changed->collection, changed->key,
                                          simple.view()["collation"]));
    const bool sharded = targets->routing != nullptr;
    if (sharded && !is_same_collection(*changed, *targets->routing)) co_return std::nullopt;
    const BsonDoc body = find_command(*changed, request, preference, by_uuid && !sharded);
    auto outcomes = co_await call_shards(context, targets->shards, targets->by(), shard::Command::of_body(body),
                                         options);
    auto found = found_in(outcomes);
    // A router that logs in without a key file may lack the action useUUID.
    if (found.has_error() && found.error().is(ErrorCode::unauthorized) && !sharded && std::exchange(by_uuid, false)) {
      continue;
    }
    if (!found.has_error() || !is_stale(found.error().code) || tries >= tries_max) co_return found;
    const Duration pause = pause_before_try(tries + 1);
    if (pause > Duration::zero()) co_await context.loop.sleep_for(pause);
    if (const Error* why = shard::requested_of(request.interrupt)) co_return *why;
  }
}

}  // namespace spillway::exec
