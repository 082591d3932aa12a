#include "proxy/exec/commands/client_times.h"

#include "proxy/auth/logical_clock.h"
#include "proxy/base/clock.h"
#include "proxy/exec/access/authorization.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/streams/stream.h"

namespace spillway::exec {

namespace {

auth::TimeTrust trust_in(const Context& context, const Client& client) {
  if (may_on_cluster(context, client, auth::Action::advance_cluster_time)) return auth::TimeTrust::full;
  return client.login.user ? auth::TimeTrust::user : auth::TimeTrust::stranger;
}

}  // namespace

Result<void> take_client_time(Context& context, const Client& client, const Request& request) {
  if (!request.cluster_time.exists()) return {};
  SPILLWAY_TRY(time, auth::read_cluster_time(request.cluster_time));
  if (time->time <= context.shared.clock.now()) return {};
  return context.shared.clock.take(*time, trust_in(context, client), wall_clock_ms() / 1000);
}

BsonDoc times_for_hello(const Context& context, const Client& client) {
  return times_for_client(context, trust_in(context, client), 0);
}

void tell_times(Context& context, const Client& client, const Request& request, Response& response) {
  if (response.closes) return;
  const auth::TimeTrust trust = trust_in(context, client);
  if (StreamReply* const stream = response.stream()) {
    stream->times_for = trust;
    return;
  }
  const std::uint64_t of_shards = request.shard_time == nullptr ? 0 : request.shard_time->operation_time();
  BsonDoc times = times_for_client(context, trust, of_shards);
  if (!times.view().empty()) response.append_elements(std::move(times));
}

}  // namespace spillway::exec
