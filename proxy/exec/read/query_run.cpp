#include "proxy/exec/read/query_run.h"

#include "proxy/shard/interrupt.h"

namespace spillway::exec {

Result<void> goes_on(const Request& request) {
  if (const Error* why = shard::requested_of(request.interrupt)) return *why;
  if (Clock::now() >= request.deadline) return time_limit_exceeded();
  return {};
}

Task<Result<void>> QueryRun::push(DocView document) {
  if (auto pushed = query_.push(document); pushed.has_error()) co_return pushed;
  co_return co_await run_steps();
}

Task<Result<void>> QueryRun::finish() {
  if (auto finished = query_.finish(); finished.has_error()) co_return finished;
  co_return co_await run_steps();
}

Task<Result<void>> QueryRun::run_steps() {
  for (;;) {
    SPILLWAY_CO_TRY(done, query_.step());
    if (slice_.is_over_now()) {
      co_await slice_.next();
      if (auto going = goes_on(request_); going.has_error()) co_return going;
    }
    if (*done) co_return Result<void>();
  }
}

}  // namespace spillway::exec
