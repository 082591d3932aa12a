// CommandTrace: makes one command a traced one, if it asks for that, and hands it to the tracer when the reply has
// left. Without a tracer it costs a branch.
#pragma once

#include <memory>

#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/core/tracer.h"

namespace spillway::exec {

struct Client;  // core/client.h

class CommandTrace {
 public:
  // `received`: when the command's last byte was there; `first_tried`: the time of its reply's first byte, as it will
  // be when the trace ends. All outlive it.
  CommandTrace(Tracer* tracer, const Request& request, const Client& client, shard::ShardTime& shards,
               TimePoint received, const TimePoint& first_tried)
      : tracer_(tracer), shards_(shards), first_tried_(first_tried) {
    if (tracer != nullptr) [[unlikely]] begin(request, client, received);
  }
  CommandTrace(const CommandTrace&) = delete;
  CommandTrace& operator=(const CommandTrace&) = delete;
  ~CommandTrace() {
    if (command_) [[unlikely]] end();
  }
  void answered(const Response& response) {
    if (command_) [[unlikely]] note(response);
  }

 private:
  void begin(const Request& request, const Client& client, TimePoint received);
  void note(const Response& response);
  void end();

  Tracer* const tracer_;
  shard::ShardTime& shards_;
  const TimePoint& first_tried_;
  std::unique_ptr<TracedCommand> command_;  // null: not traced
};

}  // namespace spillway::exec
