#include "proxy/exec/commands/command_trace.h"

#include <utility>

#include "cursor/utf8.h"
#include "proxy/exec/commands/command_table.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/streams/stream.h"

namespace spillway::exec {

namespace {

constexpr std::size_t collection_bytes_max = 255;

struct Named {
  std::string_view db, collection;
};

// The namespace of a command. Names of users and the like, which others have in the same place, are none.
Named namespace_of(const Request& request) {
  const CommandSpec* const spec = command_named(request.name);
  const auto text_of = [](ValueView value) { return value.is_string() ? value.as_string() : std::string_view(); };
  const Element first = request.body.first();
  if (request.name == "getMore") return {request.db, text_of(request.body["collection"])};
  if (request.name == "killCursors") return {request.db, text_of(first)};
  switch (spec == nullptr ? RouteNeed::none : spec->routes) {
    case RouteNeed::collection:
    case RouteNeed::written:
    case RouteNeed::pipeline:
      return {request.db, text_of(first)};
    case RouteNeed::explained:
      return {request.db, first.is_document() ? text_of(first.as_document().first()) : std::string_view()};
    case RouteNeed::full_name: {
      const catalog::Namespace parts = catalog::split_namespace(text_of(first));
      return {parts.db, parts.collection};
    }
    case RouteNeed::none:
    case RouteNeed::database:
    case RouteNeed::file:
      break;
  }
  return {request.db, {}};
}

}  // namespace

void CommandTrace::begin(const Request& request, const Client& client, TimePoint received) {
  const auto parent = trace_parent_of(request);
  if (!parent || !parent->sampled) return;
  const TimePoint now = Clock::now();
  command_ = tracer_->begin(*parent, now);
  if (!command_) return;
  const Named names = namespace_of(request);
  command_->name = clean_text(request.name, shard::CallTrace::name_bytes_max);
  command_->db = clean_text(names.db, limits::database_name_bytes_max);
  command_->collection = clean_text(names.collection, collection_bytes_max);
  command_->server = client.local;
  command_->began = received;
  command_->began_wall_ns = wall_clock_ns() - (now - received).count();
  shards_.set_trace(&command_->calls);
}

void CommandTrace::note(const Response& response) {
  if (response.failed) {
    command_->error = response.failure_code != 0 ? response.failure_code
                                                 : static_cast<std::int32_t>(ErrorCode::operation_failed);
  }
  command_->reply_bytes = reply_bytes(response);
}

void CommandTrace::end() {
  shards_.set_trace(nullptr);
  command_->ended = Clock::now();
  if (first_tried_ != TimePoint{}) command_->inside = first_tried_ - command_->began - shards_.total();
  tracer_->end(std::move(command_));
}

}  // namespace spillway::exec
