// serverStatus: the sections that tools read from a router, after its head.
#include <unistd.h>

#include "proxy/exec/admin/figures.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/counters/process_facts.h"

namespace spillway::exec {

Task<Result<Response>> server_status_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> diagnostic_data_command(Context& context, Client& client, const Request& request);

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

// `asked`: the fields of the command.
Task<BsonDoc> make_server_status(Context& context, DocView asked) {
  auto asking = ask_workers<WorkerFacts>(context, look_at_worker);
  const std::vector<WorkerFacts> answers = co_await asking;
  const StatusFacts facts = make_status_facts(context.shared, answers);
  const ValueView metrics = asked["metrics"];  // {histograms: true}
  const bool histograms = metrics.is_document() && metrics.as_document()["histograms"].truthy();
  BsonWriter out;
  append_head(out, context);
  append_sections(out, {context.shared, facts, &context, histograms}, asked);
  co_return std::move(out).finish();
}

}  // namespace

Task<Result<Response>> server_status_command(Context& context, Client&, const Request& request) {
  const BsonDoc status = co_await make_server_status(context, request.body);
  co_return ok_response(BsonWriter().append_elements(status));
}

// What a server's recorder has gathered last, here made for the question. Percona's exporter reads serverStatus in it.
Task<Result<Response>> diagnostic_data_command(Context& context, Client&, const Request&) {
  const std::int64_t start_ms = wall_clock_ms();
  const BsonDoc status = co_await make_server_status(context, DocView());
  BsonWriter reply;
  reply.begin_document("data").append_date("start", start_ms);
  reply.begin_document("serverStatus").append_date("start", start_ms).append_elements(status);
  reply.append_date("end", wall_clock_ms()).end();
  reply.append_date("end", wall_clock_ms()).end();
  co_return ok_response(std::move(reply));
}

}  // namespace spillway::exec
