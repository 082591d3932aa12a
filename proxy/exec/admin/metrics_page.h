// The content of /metrics: the cells of serverStatus, with Prometheus names. Labels are shards, commands, code names,
// budgets and the like, never namespaces, clients or users.
#pragma once

#include "proxy/exec/admin/metrics_text.h"
#include "proxy/exec/admin/status_facts.h"
#include "proxy/exec/core/services.h"

namespace spillway::exec {

// Any thread, while the workers live. It takes the locks that serverStatus takes: each for a
// moment.
void write_metrics(MetricsText& out, const Services& shared, const StatusFacts& facts);

}  // namespace spillway::exec
