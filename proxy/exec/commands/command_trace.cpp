#include "proxy/exec/commands/command_trace.h"

#include <utility>

#include "cursor/utf8.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/streams/stream.h"

namespace spillway::exec {

namespace {

constexpr std::size_t collection_bytes_max = 255;

}  // namespace

void CommandTrace::begin(const Request& request, const Client& client, TimePoint received) {
  const auto parent = trace_parent_of(request);
  if (!parent || !parent->sampled) return;
  const TimePoint now = Clock::now();
  command_ = tracer_->begin(*parent, now);
  if (!command_) return;
  const catalog::Namespace names = request.target();
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
