#include "proxy/exec/core/forward.h"

#include <algorithm>

#include "allocator/small_blocks.h"
#include "proxy/base/memory_wait.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/shard/connection.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

bool named(std::initializer_list<std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Removes the elements that a router strips from a document, in place. The document's bytes are the buffer's, hence
// writable.
void strip_in_place(std::uint8_t* document) {
  auto at = DocView::trusted(document).begin();
  while (!at.done() && !is_stripped_from_reply(at->name)) ++at;
  if (at.done()) return;
  std::uint8_t* to = document + (at->raw.data() - document);
  for (; !at.done(); ++at) {
    if (is_stripped_from_reply(at->name)) continue;
    std::memmove(to, at->raw.data(), at->raw.size());
    to += at->raw.size();
  }
  *to++ = 0;
  store_le(document, static_cast<std::int32_t>(to - document));
}

}  // namespace

void append_argument(BsonWriter& out, const Request& request, const Element& argument) {
  if (request.owned_lsid && argument.name == "lsid") {
    out.append("lsid", request.lsid_document());
  } else if (request.at_cluster_time != 0 && argument.name == "readConcern") {
    out.append("readConcern", request.read_concern);
  } else if (argument.name == "readConcern" && !request.read_concern.exists()) {
    // It is empty, or was told to the shards before.
  } else if (request.owned_write_concern && argument.name == "writeConcern") {
    out.append("writeConcern", request.owned_write_concern->view());
  } else if (request.unacknowledged && argument.name == "writeConcern") {
    out.begin_document("writeConcern").append_elements(argument.as_document(), [](auto name) { return name != "w"; });
    out.append("w", std::int32_t{1}).end();
  } else {
    out.append_element(argument);
  }
}

void copy_command(BsonWriter& out, const Request& request,
                  std::initializer_list<std::string_view> without) {
  for (auto at = request.body.begin(); !at.done(); ++at) {
    if (is_stripped_from_request(at->name) || named(without, at->name)) continue;
    append_argument(out, request, *at);
  }
}

void append_generic_arguments(BsonWriter& out, const Request& request,
                              std::initializer_list<std::string_view> without) {
  for (auto at = request.body.begin(); !at.done(); ++at) {
    if (!is_generic_argument(at->name) || named(without, at->name)) continue;
    append_argument(out, request, *at);
  }
}

void SteppedRequest::sent_a_step() {
  if (!now_->start_transaction) return;
  BsonWriter out;
  copy_command(out, *now_, {"startTransaction", "readConcern"});
  later_body_ = std::move(out).finish();
  Request& later = later_.emplace(*now_);
  later.replace_body(later_body_);
  later.start_transaction = false;
  later.read_concern = {};
  now_ = &later;
}

shard::Command forward_command(const Request& request, BsonDoc& scratch) {
  if (!request.strips_fields) return shard::Command::of_sections(request.sections);
  BsonWriter body;
  copy_command(body, request, {});
  scratch = std::move(body).finish();
  shard::Command command = shard::Command::of_body(scratch);
  // The sequences follow the body, even if they preceded it in the message.
  for (const wire::DocSequence& sequence : request.message.sequences) {
    // A kind-1 section is its kind byte, size and name directly before its documents.
    const std::size_t head = 1 + 4 + sequence.name.size() + 1;
    auto* start = const_cast<std::uint8_t*>(sequence.documents.data()) - head;
    command.sections[command.section_count++] = {start, head + sequence.documents.size()};
  }
  return command;
}

Result<Reservation> room_for_copies(const Context& context, std::size_t bytes, std::size_t copies) {
  if (copies == 0 || bytes <= small_blocks::block_bytes_max) return Reservation();
  MemoryBudget& budget = context.shared.memory.writes;
  if (auto room = reserve_now(budget, bytes * copies)) return *std::move(room);
  return without_writes(memory_refused(budget, bytes * copies, "a copy of the command"));
}

std::int32_t failure_code(DocView reply) noexcept {
  const std::int64_t code = reply["code"].to_int64().value_or(0);
  return code > 0 && code <= INT32_MAX ? static_cast<std::int32_t>(code) : 0;
}

Response passthrough(shard::Reply reply) {
  const bool ok = wire::reply_is_ok(reply.body());
  const std::int32_t code = ok ? 0 : failure_code(reply.body());
  Response response = passthrough_ok(std::move(reply));
  response.failed = !ok;
  response.failure_code = code;
  return response;
}

Response passthrough_ok(shard::Reply&& reply) {
  std::uint8_t* const document = reply.bytes.data() + (reply.body().data() - reply.bytes.data());
  if (!reply.plain) strip_in_place(document);
  return Response::of_buffer(std::move(reply.bytes), DocView::trusted(document));
}

Targets shards_with_chunks(const Routes& routes, std::string_view db, std::string_view ns) {
  Targets targets;
  targets.routing = routes.collection(ns);
  if (targets.routing != nullptr) {
    targets.shards = targets.routing->all_shards();
  } else {
    targets.database = routes.database(db);
    targets.shards.insert(routes.primary_shard(db));
  }
  return targets;
}

Task<Result<Response>> forward_read(Context& context, const Request& request, const Targets& targets) {
  return forward_to_shard(context, request, targets.shards.front(), targets.by(), read_options(context, request));
}

Task<Result<Response>> forward_write(Context& context, const Request& request, const Targets& targets) {
  return forward_to_shard(context, request, targets.shards.front(), targets.by(), write_options(context, request));
}

NamespaceText::NamespaceText(std::string_view db, std::string_view collection) {
  const std::size_t size = db.size() + 1 + collection.size();
  char* to = short_.data();
  if (size > short_.size()) {
    long_.resize(size);
    to = long_.data();
  }
  view_ = {to, size};
  std::copy(collection.begin(), collection.end(), std::copy(db.begin(), db.end(), to) + 1);
  to[db.size()] = '.';
}

bool is_simple_collation(ValueView collation) noexcept {
  const DocView document = collation.to_document();
  if (document.empty()) return true;
  const ValueView locale = document["locale"];
  return locale.is_string() && locale.as_string() == "simple";
}

bool is_simple_collation(ValueView collation, const catalog::CollectionRouting* routing) noexcept {
  const bool named = collation.is_document() && !collation.as_document().empty();
  if (named || routing == nullptr || !routing->cluster) return is_simple_collation(collation);
  return is_simple_collation({BsonType::document, routing->cluster->default_collation.view().bytes()});
}

void count_targets(HostsTargeted& metric, const Targets& targets) {
  if (targets.routing == nullptr) {
    metric.unsharded.add();
  } else if (targets.shards.size() == 1) {
    metric.one_shard.add();
  } else if (targets.shards.size() == targets.routing->all_shards().size()) {
    metric.all_shards.add();
  } else {
    metric.many_shards.add();
  }
}

}  // namespace spillway::exec
