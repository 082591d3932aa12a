#include "proxy/exec/commands/client_times.h"

#include "proxy/base/clock.h"

namespace spillway::exec {

namespace {

auth::TimeTrust trust_in(const Context& context, const Client& client) {
  if (!context.shared.authorization) return auth::TimeTrust::full;
  return client.login.user ? auth::TimeTrust::user : auth::TimeTrust::stranger;
}

}  // namespace

Result<void> take_client_time(Context& context, const Client& client, const Request& request) {
  if (!request.cluster_time.exists()) return {};
  auto time = auth::read_cluster_time(request.cluster_time);
  if (time.has_error()) return std::move(time.error());
  if (time->time <= context.shared.clock.now()) return {};
  return context.shared.clock.take(*time, trust_in(context, client), wall_clock_ms() / 1000);
}

void tell_times(Context& context, const Client& client, const Request& request, Response& response) {
  if (response.stream() != nullptr || response.closes) return;
  const auto time = context.shared.clock.for_client(trust_in(context, client));
  if (!time) return;
  BsonWriter out;
  const std::uint64_t of_shards = request.shard_time == nullptr ? 0 : request.shard_time->operation_time();
  out.append_timestamp("operationTime", of_shards != 0 ? of_shards : context.shared.clock.now());
  auth::append_cluster_time(out, *time);
  response.append_elements(std::move(out).finish());
}

}  // namespace spillway::exec
