// TraceExporter: sends traced commands to a collector (OTLP over HTTP), in batches, on a thread of its own.
//
// A worker only leaves a finished command. The budget of traced commands bounds the queue. One batch is under way at
// a time; it is sent again, with growing pauses, after a failure to connect and after 429, 502, 503 and 504, and is
// lost after `batch_age_max`, or at once when the handshake of TLS fails. Retry-After holds for the batches after it,
// too.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "allocator/mutex.h"
#include "proxy/base/log_pace.h"
#include "proxy/base/loop.h"
#include "proxy/base/tcp_transport.h"
#include "proxy/base/tls_context.h"
#include "proxy/config/http_endpoint.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/server/traces/otlp.h"
#include "proxy/shard/waiter.h"

namespace spillway::server {

// What the budget of traced commands needs: a batch as JSON, and the commands that wait.
inline constexpr std::uint64_t trace_memory_bytes = 4ULL * 1024 * 1024;

class TraceExporter {
 public:
  struct Bounds {
    std::size_t batch_spans = 512;
    Duration batch_wait = std::chrono::seconds(1);  // for more spans
    Duration connect_max = std::chrono::seconds(1);
    Duration answer_max = std::chrono::seconds(10);
    Duration pause_first = std::chrono::seconds(1);  // before the second attempt; doubles
    Duration pause_max = std::chrono::seconds(30);
    Duration retry_after_max = std::chrono::minutes(5);
    Duration batch_age_max = std::chrono::minutes(1);
    Duration stop_max = std::chrono::seconds(1);
  };

  // `tls`: for https. Throws std::runtime_error when there is no room for a batch. All outlive it.
  TraceExporter(HttpEndpoint to, TlsContext::Ptr tls, TraceSource source, MemoryBudget& budget,
                exec::Metrics& metrics)
      : TraceExporter(std::move(to), std::move(tls), std::move(source), budget, metrics, Bounds()) {}
  TraceExporter(HttpEndpoint to, TlsContext::Ptr tls, TraceSource source, MemoryBudget& budget,
                exec::Metrics& metrics, const Bounds& bounds);
  ~TraceExporter();
  TraceExporter(const TraceExporter&) = delete;
  TraceExporter& operator=(const TraceExporter&) = delete;

  // Any thread. False: it was stopped.
  bool offer(std::unique_ptr<exec::TracedCommand> command);
  // Sends what waits, for stop_max at most, and ends the thread.
  void stop();

 private:
  struct Batch {
    std::vector<std::unique_ptr<exec::TracedCommand>> commands;
    std::size_t spans = 0;
  };
  class Cut final : public Timer {
   public:
    explicit Cut(TraceExporter& exporter) noexcept : exporter_(exporter) {}
    void on_timer() override {
      if (exporter_.under_way_ != nullptr) exporter_.under_way_->close();
    }

   private:
    TraceExporter& exporter_;
  };

  Task<void> run();
  Task<void> wait_for_batch();
  Task<void> send(Batch batch);
  Task<void> pause_until(TimePoint until);
  Batch take();
  std::size_t waiting_spans() const;
  void fail(std::size_t spans, const std::string& why);

  const HttpEndpoint to_;
  const TlsContext::Ptr tls_;
  const TraceSource source_;
  exec::Metrics& metrics_;
  const Bounds bounds_;
  Reservation batch_memory_;

  mutable Mutex mutex_;
  std::deque<std::unique_ptr<exec::TracedCommand>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::size_t waiting_spans_ ABSL_GUARDED_BY(mutex_) = 0;
  bool refuses_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's own.
  Loop loop_;
  TcpNetwork network_{loop_, TcpOptions()};
  shard::WaiterLine waiter_;
  SpanIds ids_;
  Transport* under_way_ = nullptr;
  Cut cut_{*this};
  TimePoint not_before_{};  // Retry-After
  TimePoint stop_at_ = time_point_never;
  log::LogPace log_pace_;

  std::thread thread_;
};

}  // namespace spillway::server
