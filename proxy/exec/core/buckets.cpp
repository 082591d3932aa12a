#include "proxy/exec/core/buckets.h"

#include "proxy/exec/core/forward.h"

namespace spillway::exec {

bool has_sharded_buckets(const Request& request) {
  return !request.buckets.empty() && request.routes->in_cluster() &&
         request.routes->collection(NamespaceText(request.db, request.buckets).view()) != nullptr;
}

Task<Result<Response>> run_on_buckets(Context& context, Client& client, const Request& request, Handler handler,
                                      bool says_so) {
  BsonWriter body;
  body.append(request.name, request.buckets);
  for (auto at = ++request.body.begin(); !at.done(); ++at) body.append_element(*at);
  if (says_so) body.append("isTimeseriesNamespace", true);
  const BsonDoc rewritten = std::move(body).finish();
  Request inner = request;
  inner.buckets.clear();
  inner.replace_body(rewritten);
  co_return co_await handler(context, client, inner);
}

}  // namespace spillway::exec
