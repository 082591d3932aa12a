// Traced commands on their way to a collector, over loopback: one that is slow, away, overloaded.
#include "proxy/server/traces/trace_exporter.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "proxy/base/file_descriptor.h"

namespace spillway::server {
namespace {

using namespace std::chrono_literals;

// A server that takes one request after the other, and answers what the test says. Empty: it never answers.
class Collector {
 public:
  using Answer = std::function<std::string(std::size_t nth, const std::string& request)>;

  explicit Collector(Answer answer)
      : answer_(std::move(answer)), door_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    REQUIRE(::bind(door_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0);
    REQUIRE(::listen(door_.get(), 16) == 0);
    REQUIRE(::getsockname(door_.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Collector() {
    ::shutdown(door_.get(), SHUT_RDWR);
    thread_.join();
  }
  HttpEndpoint endpoint() const { return {false, "127.0.0.1", port_, "/v1/traces"}; }
  // The requests, once there are `count`.
  std::vector<std::string> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(came_.wait_for(lock, 20s, [&] { return requests_.size() >= count; }));
    return requests_;
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return requests_.size();
  }

 private:
  void serve() {
    std::vector<FileDescriptor> unanswered;
    for (;;) {
      FileDescriptor client(::accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      const std::string request = read_request(client);
      std::size_t nth = 0;
      {
        const std::lock_guard lock(mutex_);
        nth = requests_.size();
        requests_.push_back(request);
      }
      const std::string answer = answer_(nth, request);
      ::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      if (answer.empty()) unanswered.push_back(std::move(client));
      came_.notify_all();
    }
  }
  static std::string read_request(const FileDescriptor& client) {
    std::string all;
    char piece[4096];
    for (;;) {
      const std::size_t head = all.find("\r\n\r\n");
      const std::size_t field = all.find("Content-Length: ");
      if (head != std::string::npos && all.size() >= head + 4 + std::stoul(all.substr(field + 16))) return all;
      const ssize_t got = ::recv(client.get(), piece, sizeof piece, 0);
      if (got <= 0) return all;
      all.append(piece, static_cast<std::size_t>(got));
    }
  }

  Answer answer_;
  FileDescriptor door_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

const char* const taken = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

TraceExporter::Bounds quick() {
  TraceExporter::Bounds bounds;
  bounds.batch_wait = 1ms;
  bounds.pause_first = 2ms;
  bounds.pause_max = 4ms;
  return bounds;
}

struct Exporting {
  explicit Exporting(HttpEndpoint to, const TraceExporter::Bounds& bounds = quick())
      : exporter(std::move(to), nullptr, {"0.1.0", "router:1"}, budget, metrics, bounds) {}
  bool offer(std::size_t commands = 1) {
    bool all = true;
    for (std::size_t i = 0; i < commands; ++i) {
      auto command = std::make_unique<exec::TracedCommand>(*budget.try_reserve(exec::Tracer::command_bytes));
      command->name = "find";
      all = exporter.offer(std::move(command)) && all;
    }
    return all;
  }
  // Exported, failed.
  std::pair<std::uint64_t, std::uint64_t> counts() const {
    return {metrics.spans_exported.value(), metrics.spans_failed.value()};
  }
  void wait_for(std::uint64_t exported, std::uint64_t failed) const {
    const std::pair<std::uint64_t, std::uint64_t> expected{exported, failed};
    for (int i = 0; i < 20'000 && counts() != expected; ++i) std::this_thread::sleep_for(1ms);
    CHECK(counts() == expected);
  }
  MemoryBudget budget{"traces", 64 << 20};
  exec::Metrics metrics;
  TraceExporter exporter;
};

}  // namespace

TEST_CASE("spans are posted as JSON, many in a request", "[traces]") {
  Collector collector([](std::size_t, const std::string&) { return taken; });
  TraceExporter::Bounds bounds = quick();
  bounds.batch_wait = 1h;  // a full batch does not wait
  bounds.batch_spans = 100;
  Exporting exporting(collector.endpoint(), bounds);
  CHECK(exporting.offer(250));
  const auto requests = collector.wait_for(2);
  CHECK(requests[0].starts_with("POST /v1/traces HTTP/1.1\r\n"));
  CHECK(requests[0].find("\r\nContent-Type: application/json\r\n") != std::string::npos);
  CHECK(requests[0].find("\r\nHost: 127.0.0.1:") != std::string::npos);
  const std::string body = requests[0].substr(requests[0].find("\r\n\r\n") + 4);
  CHECK(body.starts_with("{"));
  CHECK(body.find("\"resourceSpans\"") != std::string::npos);
  exporting.wait_for(200, 0);
  exporting.exporter.stop();  // sends the rest
  CHECK(exporting.counts() == std::pair<std::uint64_t, std::uint64_t>{250, 0});
  CHECK(collector.count() == 3);
  CHECK_FALSE(exporting.offer());
}

TEST_CASE("an overloaded collector is asked again, one that refuses is not", "[traces]") {
  const unsigned status = GENERATE(429U, 502U, 503U, 504U);
  Collector overloaded([&](std::size_t nth, const std::string&) {
    return nth < 2 ? "HTTP/1.1 " + std::to_string(status) + " Busy\r\nContent-Length: 0\r\n\r\n" : std::string(taken);
  });
  Exporting exporting(overloaded.endpoint());
  exporting.offer();
  exporting.wait_for(1, 0);
  const auto requests = overloaded.wait_for(3);
  const auto body = [](const std::string& request) { return request.substr(request.find("\r\n\r\n")); };
  CHECK(body(requests[0]) == body(requests[2]));

  Collector refusing([](std::size_t, const std::string&) { return "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n"; });
  Exporting refused(refusing.endpoint());
  refused.offer();
  refused.wait_for(0, 1);
  CHECK(refusing.count() == 1);
}

TEST_CASE("Retry-After is waited for, by the next batches, too", "[traces]") {
  Collector collector([](std::size_t nth, const std::string&) {
    return nth == 0 ? "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n" : taken;
  });
  Exporting exporting(collector.endpoint());
  exporting.offer();
  collector.wait_for(1);
  const auto asked = std::chrono::steady_clock::now();
  exporting.offer();
  exporting.wait_for(2, 0);
  CHECK(std::chrono::steady_clock::now() - asked >= 900ms);

  Collector longer([](std::size_t, const std::string&) {
    return "HTTP/1.1 429 Busy\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n";
  });
  TraceExporter::Bounds bounds = quick();
  bounds.batch_age_max = 10s;
  bounds.stop_max = 50ms;
  Exporting waiting(longer.endpoint(), bounds);
  waiting.offer();
  waiting.wait_for(0, 1);  // it would be too old by then
  waiting.offer();
  std::this_thread::yield();
  waiting.exporter.stop();
  CHECK(waiting.counts().second == 2);
  CHECK(longer.count() == 1);
}

TEST_CASE("spans that a collector rejects have failed", "[traces]") {
  Collector collector([](std::size_t, const std::string&) {
    const std::string body = R"({"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}})";
    return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  });
  TraceExporter::Bounds bounds = quick();
  bounds.batch_wait = 1h;
  bounds.batch_spans = 5;
  Exporting exporting(collector.endpoint(), bounds);
  exporting.offer(5);
  exporting.wait_for(3, 2);
}

TEST_CASE("a collector that is away costs the spans of a while, and is found again", "[traces]") {
  TraceExporter::Bounds bounds = quick();
  bounds.batch_age_max = 20ms;
  std::uint16_t free_port = 0;
  {
    Collector was([](std::size_t, const std::string&) { return taken; });
    free_port = was.endpoint().port;
  }
  Exporting away({false, "127.0.0.1", free_port, "/"}, bounds);
  away.offer(3);
  for (int i = 0; i < 20'000 && away.counts().second < 3; ++i) std::this_thread::sleep_for(1ms);
  CHECK(away.counts() == std::pair<std::uint64_t, std::uint64_t>{0, 3});
  CHECK(away.offer());  // it never says no
}

TEST_CASE("answers that are no HTTP, or end early, are failures", "[traces]") {
  const char* const answer = GENERATE("nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}");
  TraceExporter::Bounds bounds = quick();
  bounds.batch_age_max = 10ms;
  Collector collector([&](std::size_t, const std::string&) { return answer; });
  Exporting exporting(collector.endpoint(), bounds);
  exporting.offer();
  exporting.wait_for(0, 1);
}

TEST_CASE("a stop waits for a slow collector no longer than it may", "[traces]") {
  Collector silent([](std::size_t, const std::string&) { return ""; });
  TraceExporter::Bounds bounds = quick();
  bounds.stop_max = 100ms;
  Exporting exporting(silent.endpoint(), bounds);
  exporting.offer();
  silent.wait_for(1);
  exporting.offer(4);
  const auto begun = std::chrono::steady_clock::now();
  exporting.exporter.stop();
  CHECK(std::chrono::steady_clock::now() - begun < 5s);  // the answer has ten
  CHECK(exporting.counts() == std::pair<std::uint64_t, std::uint64_t>{0, 5});
  CHECK(exporting.budget.usage().used_bytes == 512 * otlp_span_bytes_max);  // the batch's own
}

TEST_CASE("an answer may come in chunks", "[traces]") {
  Collector collector([](std::size_t, const std::string&) {
    return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
  });
  Exporting exporting(collector.endpoint());
  exporting.offer();
  exporting.wait_for(1, 0);
}

TEST_CASE("where there is no room for a batch, the start says so", "[traces]") {
  MemoryBudget budget("traces", 1'000);
  exec::Metrics metrics;
  CHECK_THROWS_AS(TraceExporter({}, nullptr, {}, budget, metrics), std::runtime_error);
}

}  // namespace spillway::server
