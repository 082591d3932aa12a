// serverStatus: the sections that tools read from a router, after its head.
#include <unistd.h>

#include "proxy/exec/admin/figures.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/process_facts.h"
#include "proxy/exec/core/wire_version.h"

namespace spillway::exec {

Task<Result<Response>> server_status_command(Context& context, Client& client, const Request& request);

namespace {

void append_head(BsonWriter& out, const Context& context) {
  const ProcessFacts& process = context.shared.facts;
  const Duration up = Clock::now() - process.start_time;
  const std::int64_t up_ms = std::chrono::duration_cast<std::chrono::milliseconds>(up).count();
  out.append("host", process.host_name);
  out.append("version", emulated_version(context.gateway));
  out.append("process", "mongos");
  out.append("pid", std::int64_t{::getpid()});
  out.append("uptime", static_cast<double>(up_ms / 1000));
  out.append("uptimeMillis", up_ms);
  out.append("uptimeEstimate", up_ms / 1000);
  out.append_date("localTime", wall_clock_ms());
}

}  // namespace

Task<Result<Response>> server_status_command(Context& context, Client&, const Request& request) {
  auto asking = ask_workers<WorkerFacts>(context, look_at_worker);
  const std::vector<WorkerFacts> answers = co_await asking;
  const StatusFacts facts = make_status_facts(context.shared, answers);
  const ValueView asked = request.body["metrics"];  // {histograms: true}
  const bool histograms = asked.is_document() && asked.as_document()["histograms"].truthy();
  BsonWriter reply;
  append_head(reply, context);
  append_sections(reply, {context.shared, facts, &context, histograms}, request.body);
  co_return ok_response(std::move(reply));
}

}  // namespace spillway::exec
