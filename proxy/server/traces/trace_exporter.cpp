#include "proxy/server/traces/trace_exporter.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "proxy/base/log.h"
#include "proxy/base/number.h"
#include "proxy/server/traces/http_client.h"

namespace spillway::server {

namespace {

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed) throw std::runtime_error("the system gave no random bytes");
  return seed;
}

// OTLP/HTTP: what else fails must not be sent again. A certificate that is wrong now is wrong in a minute, too.
bool may_be_repeated(const Result<HttpAnswer>& answer) noexcept {
  if (answer.has_error()) return !answer.error().is(ErrorCode::ssl_handshake_failed);
  return answer->status == 429 || answer->status == 502 || answer->status == 503 || answer->status == 504;
}

// In seconds; a date counts as missing.
Duration retry_after_of(const HttpAnswer& answer) noexcept {
  return std::chrono::seconds(parse_number<std::uint32_t>(answer.retry_after).value_or(0));
}

}  // namespace

TraceExporter::TraceExporter(HttpEndpoint to, TlsContext::Ptr tls, TraceSource source, MemoryBudget& budget,
                             exec::Metrics& metrics, const Bounds& bounds)
    : to_(std::move(to)),
      tls_(std::move(tls)),
      source_(std::move(source)),
      metrics_(metrics),
      bounds_(bounds),
      ids_(random_seed()) {
  auto memory = budget.try_reserve(bounds_.batch_spans * otlp_span_bytes_max);
  if (!memory) throw std::runtime_error("there is no memory for a batch of spans");
  batch_memory_ = *std::move(memory);
  thread_ = std::thread([this] {
    log::name_thread("traces");
    loop_.spawn(run());
    loop_.run();
  });
}

TraceExporter::~TraceExporter() { stop(); }

bool TraceExporter::offer(std::unique_ptr<exec::TracedCommand> command) {
  const std::size_t spans = command->spans();
  bool wakes = false;
  {
    const MutexLock lock(mutex_);
    if (refuses_) return false;
    const std::size_t before = std::exchange(waiting_spans_, waiting_spans_ + spans);
    wakes = before == 0 || (before < bounds_.batch_spans && waiting_spans_ >= bounds_.batch_spans);
    waiting_.push_back(std::move(command));
  }
  if (wakes) loop_.post([this] { shard::wake_all(waiter_); });
  return true;
}

void TraceExporter::stop() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    refuses_ = true;
  }
  loop_.post([this] {
    stop_at_ = Clock::now() + bounds_.stop_max;
    loop_.arm(cut_, stop_at_);
    shard::wake_all(waiter_);
  });
  thread_.join();
}

std::size_t TraceExporter::waiting_spans() const {
  const MutexLock lock(mutex_);
  return waiting_spans_;
}

// Whole commands: at least one.
TraceExporter::Batch TraceExporter::take() {
  Batch batch;
  const MutexLock lock(mutex_);
  while (!waiting_.empty()) {
    const std::size_t spans = waiting_.front()->spans();
    if (!batch.commands.empty() && batch.spans + spans > bounds_.batch_spans) break;
    batch.spans += spans;
    batch.commands.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  waiting_spans_ -= batch.spans;
  return batch;
}

Task<void> TraceExporter::run() {
  for (;;) {
    co_await wait_for_batch();
    Batch batch = take();
    if (batch.commands.empty()) break;  // stopped
    auto sending = send(std::move(batch));
    co_await sending;
  }
  loop_.disarm(cut_);
  loop_.stop();
}

// A stop ends the wait.
Task<void> TraceExporter::pause_until(TimePoint until) {
  shard::Waiter waiter(loop_, until);
  waiter_.push_back(waiter);
  co_await waiter;
}

Task<void> TraceExporter::wait_for_batch() {
  TimePoint due = time_point_never;
  while (stop_at_ == time_point_never) {
    const std::size_t spans = waiting_spans();
    const TimePoint now = Clock::now();
    if (spans > 0) due = std::min(due, now + bounds_.batch_wait);
    if (spans >= bounds_.batch_spans || now >= due) co_return;
    co_await pause_until(due);
  }
}

void TraceExporter::fail(std::size_t spans, const std::string& why) {
  metrics_.spans_failed.add(spans);
  if (const auto unwritten = log_pace_.due(Clock::now(), std::chrono::minutes(1))) {
    log::warning("{} spans are lost: http{}://{}{}: {}; {} more such lines since the last", spans, to_.tls ? "s" : "",
                 to_.authority(), to_.path, why, *unwritten);
  }
}

Task<void> TraceExporter::send(Batch batch) {
  const std::string text = otlp_request(source_, batch.commands, ids_);
  const std::size_t spans = batch.spans;
  const TimePoint given_up = Clock::now() + bounds_.batch_age_max;
  batch.commands.clear();
  Duration pause = bounds_.pause_first;
  std::string why = "the router shuts down";
  for (;;) {
    while (Clock::now() < std::min(not_before_, stop_at_)) {
      co_await pause_until(std::min(not_before_, stop_at_));
    }
    const TimePoint now = Clock::now();
    if (now >= stop_at_) {
      fail(spans, why);
      co_return;
    }
    auto posting = http_post(network_, {.to = to_,
                                        .tls = tls_,
                                        .body = text,
                                        .connected_by = now + bounds_.connect_max,
                                        .deadline = std::min(stop_at_, now + bounds_.answer_max),
                                        .under_way = &under_way_});
    const auto answer = co_await posting;
    if (!answer.has_error() && answer->status / 100 == 2) {
      const std::uint64_t rejected = std::min<std::uint64_t>(rejected_spans(answer->body), spans);
      metrics_.spans_exported.add(spans - rejected);
      if (rejected > 0) fail(rejected, "the collector rejects them");
      co_return;
    }
    why = answer.has_error() ? answer.error().message : fmt::format("HTTP status {}", answer->status);
    const bool repeats = may_be_repeated(answer);
    // Half of the pause at least, so that several routers do not come back together.
    const TimePoint tried = Clock::now();
    const Duration jitter(static_cast<Duration::rep>(ids_.next() % static_cast<std::uint64_t>(pause.count() / 2 + 1)));
    not_before_ = tried + pause / 2 + jitter;
    if (!answer.has_error()) {
      not_before_ = std::max(not_before_, tried + std::min(retry_after_of(*answer), bounds_.retry_after_max));
    }
    pause = std::min(2 * pause, bounds_.pause_max);
    if (!repeats) not_before_ = tried;
    if (!repeats || not_before_ >= given_up) {
      fail(spans, why);
      co_return;
    }
  }
}

}  // namespace spillway::server
