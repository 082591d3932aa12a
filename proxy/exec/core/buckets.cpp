#include "proxy/exec/core/buckets.h"

#include "proxy/exec/core/forward.h"

namespace spillway::exec {

bool has_sharded_buckets(const Request& request) {
  return !request.buckets.empty() && request.routes->in_cluster() &&
         request.routes->collection(NamespaceText(request.db, request.buckets).view()) != nullptr;
}

bool is_on_buckets(const Request& request) { return request.body["isTimeseriesNamespace"].truthy(); }

BsonDoc command_on_buckets(const Request& request, bool says_so) {
  BsonWriter body;
  body.append(request.name, request.buckets);
  copy_command(body, request, {request.name});
  if (says_so) body.append("isTimeseriesNamespace", true);
  return std::move(body).finish();
}

Task<Result<Response>> run_on_buckets(Context& context, Client& client, const Request& request, Handler handler) {
  const BsonDoc rewritten = command_on_buckets(request, true);
  Request inner = request;
  inner.buckets.clear();
  inner.replace_body(rewritten);
  co_return co_await handler(context, client, inner);
}

}  // namespace spillway::exec
