// A query over documents in memory as a part of a request: it gives other requests turns, and ends with its own.
#pragma once

#include "proxy/base/time_slice.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/pipeline/split/run.h"

namespace spillway::exec {

// Between two steps of long work: that the request was interrupted, or MaxTimeMSExpired(50).
Result<void> goes_on(const Request& request);

// All that it is given outlives it. Single-threaded.
class QueryRun {
 public:
  QueryRun(Context& context, const Request& request, pipeline::DocumentQuery& query) noexcept
      : request_(request), query_(query), slice_(context.pump) {}

  bool wants_more() const noexcept { return query_.wants_more(); }
  // `document` need not be valid after the task. The query's errors, or goes_on()'s.
  Task<Result<void>> push(DocView document);
  // No more documents come.
  Task<Result<void>> finish();
  // After a suspension for another reason.
  void renew() noexcept { slice_.renew(); }

 private:
  Task<Result<void>> run_steps();

  const Request& request_;
  pipeline::DocumentQuery& query_;
  TimeSlice slice_;
};

}  // namespace spillway::exec
