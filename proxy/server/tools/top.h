// `spillway top`: watches a running router through its admin port.
#pragma once

#include "proxy/config/config.h"

namespace spillway::server {

struct TopOptions {
  bool once = false;  // one look, then the end
  bool json = false;  // the documents themselves, a line each
};

// Asks net.admin of the configuration, every second. On a terminal it draws in place until q, Ctrl-C or SIGTERM;
// elsewhere it looks once, unless `json` says otherwise. A look that is not `json` compares two documents, a second
// apart. Ignores errors of the configuration as health_check() does. Returns the exit code: exit_failed when the router
// does not answer at first.
int top(const LoadResult& loaded, TopOptions options);

}  // namespace spillway::server
