#include "proxy/exec/access/limits_status.h"

#include <array>

#include "proxy/exec/access/audit.h"
#include "proxy/exec/core/failed_logins.h"
#include "proxy/exec/core/limits.h"
#include "proxy/exec/core/metrics.h"

namespace spillway::exec {

namespace {

std::int64_t of(const Counter& counter) noexcept { return as_long(counter.value()); }

}  // namespace

void append_connection_limits(BsonWriter& out, const Services& shared) {
  out.append("rejected", of(shared.metrics.connections_rejected));
  out.append("idleClosed", of(shared.metrics.idle_clients_closed));
  out.append("silentClosed", of(shared.metrics.silent_clients_closed));
  out.append("timedOut", of(shared.metrics.clients_timed_out));
}

void append_login_limits(BsonWriter& out, const Services& shared) {
  out.begin_document("failedLogins");
  out.append("refused", as_long(shared.failed_logins->refused()));
  out.append("tracked", as_long(shared.failed_logins->tracked()));
  out.end();
  if (!shared.audit) return;
  out.begin_document("auditLog");
  out.append("written", as_long(shared.audit->written())).append("lost", as_long(shared.audit->lost()));
  out.end();
}

void append_limits(BsonWriter& out, const Services& shared) {
  for (std::size_t i = 0; i < limit_keys; ++i) {
    const auto key = static_cast<LimitKey>(i);
    const LimitUsage usage = shared.limits.usage(key);
    out.begin_document(section_of(key)).append("tracked", as_long(usage.tracked)).begin_document("refused");
    for (std::size_t thing = 0; thing < limited_things; ++thing) {
      out.append(name_of(static_cast<LimitOf>(thing)), as_long(usage.refused[thing]));
    }
    out.end().end();
  }
}

}  // namespace spillway::exec
