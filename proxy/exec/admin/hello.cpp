#include "proxy/exec/admin/hello.h"

#include <algorithm>
#include <chrono>

#include "proxy/exec/access/authentication.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/counters/process_facts.h"

namespace spillway::exec {

namespace {

void append_topology_version(BsonWriter& out, const Context& context) {
  out.begin_document("topologyVersion");
  out.append_object_id("processId", context.shared.facts.process_id);
  out.append("counter", context.shared.life.topology_counter.load());
  out.end();
}

}  // namespace

BsonDoc hello_reply(Context& context, Client& client, const wire::HelloRequest& request,
                    const wire::CompressorList& negotiated) {
  const auto& states = context.gateway.states();
  const bool replica_sets =
      std::all_of(states.begin(), states.end(), [](const auto& each) { return each.replica_set || each.retired; });
  BsonWriter reply;
  reply.append(request.is_hello ? "isWritablePrimary" : "ismaster", true);
  reply.append("msg", "isdbgrid");
  append_topology_version(reply, context);
  if (request.hello_ok) reply.append("helloOk", true);
  reply.append("maxBsonObjectSize", static_cast<std::int32_t>(limits::document_bytes_max));
  reply.append("maxMessageSizeBytes", static_cast<std::int32_t>(context.shared.memory.message_bytes_max));
  reply.append("maxWriteBatchSize", limits::write_batch_size_max);
  reply.append_date("localTime", wall_clock_ms());
  if (replica_sets) reply.append("logicalSessionTimeoutMinutes", std::int32_t{30});
  append_count(reply, "connectionId", client.connection_id);
  reply.append("maxWireVersion", advertised_wire_version(context.gateway));
  reply.append("minWireVersion", std::int32_t{0});
  if (client.presence.load_balanced()) {
    // Behind one address drivers tell processes apart by it.
    reply.append_object_id("serviceId", context.shared.facts.process_id);
  }
  if (!negotiated.empty()) {
    reply.begin_array("compression");
    for (const wire::Compressor compressor : negotiated) reply.append_item(wire::compressor_name(compressor));
    reply.end();
  }
  append_authentication(reply, context, client, request);
  return ok_document(std::move(reply));
}

BsonDoc quiesce_reply(const Context& context) {
  BsonWriter reply;
  reply.append_elements(error_document(Error(
      ErrorCode::shutdown_in_progress, "the router is in quiesce mode and will shut down")));
  append_topology_version(reply, context);
  const Duration left = TimePoint(Duration(context.shared.life.quiesce_end_ns.load())) - Clock::now();
  reply.append("remainingQuiesceTimeMillis",
               std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(left).count()));
  return std::move(reply).finish();
}

Error with_topology_version(const Context& context, Error error) {
  const bool shutdown = error.is(ErrorCode::shutdown_in_progress) || error.is(ErrorCode::interrupted_at_shutdown);
  if (!shutdown || !context.shared.life.quiescing || !error.extra.empty()) return error;
  BsonWriter extra;
  append_topology_version(extra, context);
  const BsonDoc document = std::move(extra).finish();
  error.extra.assign(reinterpret_cast<const char*>(document.view().data()), document.size());
  return error;
}

}  // namespace spillway::exec
