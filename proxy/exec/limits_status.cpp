// Source of the first three: MongoDB 8.2's own serverStatus.
#include "proxy/exec/limits_status.h"

#include <array>

#include "proxy/exec/audit.h"
#include "proxy/exec/failed_logins.h"
#include "proxy/exec/rate_limiter.h"

namespace spillway::exec {

namespace {

std::int64_t of(const Counter& counter) noexcept { return as_long(counter.value()); }

}  // namespace

void append_connection_limits(BsonWriter& out, const Shared& shared) {
  const RateLimiter& rate = *shared.connection_rate;
  out.append("rejected", of(shared.metrics.connections_rejected));
  out.append("limitExempt", of(shared.metrics.connections_exempt));
  out.append("queuedForEstablishment", shared.connections_queued.load());
  out.begin_document("establishmentRateLimit");
  out.append("rejected", of(rate.rejected)).append("exempted", of(rate.exempted));
  out.append("interruptedDueToClientDisconnect", of(rate.interrupted));
  out.end();
  out.append("idleClosed", of(shared.metrics.idle_clients_closed));
  out.append("silentClosed", of(shared.metrics.silent_clients_closed));
  out.append("timedOut", of(shared.metrics.clients_timed_out));
}

void append_establishment_queue(BsonWriter& out, const Shared& shared) {
  const RateLimiter& rate = *shared.connection_rate;
  out.begin_document("ingressSessionEstablishment");
  out.append("addedToQueue", of(rate.added_to_queue)).append("removedFromQueue", of(rate.removed_from_queue));
  out.append("interruptedInQueue", of(rate.interrupted)).append("rejectedAdmissions", of(rate.rejected));
  out.append("exemptedAdmissions", of(rate.exempted)).append("successfulAdmissions", of(rate.successful));
  out.append("attemptedAdmissions", of(rate.attempted)).append("averageTimeQueuedMicros", rate.mean_wait_us());
  out.append("totalAvailableTokens", rate.tokens(Clock::now()));
  out.end();
}

void append_request_rate(BsonWriter& out, const Shared& shared) {
  const RateLimiter& rate = *shared.request_rate;
  out.begin_document("ingressRequestRateLimiter");
  out.append("rejectedAdmissions", of(rate.rejected)).append("exemptedAdmissions", of(rate.exempted));
  out.append("successfulAdmissions", of(rate.successful)).append("attemptedAdmissions", of(rate.attempted));
  out.append("totalAvailableTokens", rate.tokens(Clock::now()));
  out.end();
}

void append_login_limits(BsonWriter& out, const Shared& shared) {
  out.begin_document("failedLogins");
  out.append("refused", as_long(shared.failed_logins->refused()));
  out.append("tracked", as_long(shared.failed_logins->tracked()));
  out.end();
  if (!shared.audit) return;
  out.begin_document("auditLog");
  out.append("written", as_long(shared.audit->written())).append("lost", as_long(shared.audit->lost()));
  out.end();
}

void append_limits(BsonWriter& out, const Shared& shared) {
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
