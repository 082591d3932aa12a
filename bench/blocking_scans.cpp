// blocking_scans: scans as most drivers do them, the second shape of load beside bench/load: a thread for each client,
// blocking reads of whole batches, the next getMore after the last document was looked at. Every document's number is
// checked. Prints one JSON object with the fields of `load --json` that compare reads; exits like load.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/histogram.h"
#include "bench/load_checks.h"
#include "bench/load_peer.h"
#include "bench/bson_bytes.h"
#include "proxy/canned/documents.h"
#include "bench/message.h"

namespace {

using namespace spillway::bench;
using SteadyClock = std::chrono::steady_clock;

enum class Phase { warmup, window, over };

struct Run {
  std::uint16_t port = 0;
  std::string collection;
  Shape shape;
  std::atomic<Phase> phase{Phase::warmup};
  std::atomic<std::uint64_t> bytes{0};  // in the window
  std::mutex mutex;                     // of what follows
  Histogram latency_ns;
  CheckCounts checks;
  std::string fault;
};

class BlockingClient {
 public:
  explicit BlockingClient(Run& run) : run_(run), scan_(run.shape.count, false) {}
  ~BlockingClient() {
    if (fd_ >= 0) ::close(fd_);
  }
  BlockingClient(const BlockingClient&) = delete;
  BlockingClient& operator=(const BlockingClient&) = delete;

  void scan_until_over() {
    if (!connect()) return;
    while (fault_.empty() && (cursor_id_ != 0 || run_.phase != Phase::over)) {
      if (cursor_id_ != 0 && run_.phase == Phase::over) return kill_cursor();
      next_batch();
    }
  }
  void report() {
    const std::lock_guard lock(run_.mutex);
    run_.latency_ns.add(latency_ns_);
    run_.checks.add(checks_);
    if (run_.fault.empty()) run_.fault = fault_;
  }

 private:
  bool connect() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(run_.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const timeval patience{30, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return true;
    fault_ = "cannot connect";
    return false;
  }

  bool read_whole(char* into, std::size_t bytes) {
    while (bytes > 0) {
      const ssize_t got = ::recv(fd_, into, bytes, MSG_WAITALL);
      if (got <= 0) return false;
      if (run_.phase == Phase::window) run_.bytes += static_cast<std::size_t>(got);
      into += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return true;
  }

  // Empty: it did not come.
  std::string_view ask(const std::string& command) {
    std::string request;
    append_op_msg_prefix(request, command.size(), ++request_id_, 0);
    request += command;
    if (::send(fd_, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) return {};
    reply_.resize(std::max(reply_.size(), header_bytes));
    if (!read_whole(reply_.data(), header_bytes)) return {};
    const MessageHeader header = load_header(reply_.data());
    if (!header.plausible() || header.opcode != op_msg) return {};
    const auto size = static_cast<std::size_t>(header.bytes);
    reply_.resize(std::max(reply_.size(), size));
    if (size < op_msg_prefix_bytes || !read_whole(reply_.data() + header_bytes, size - header_bytes)) return {};
    return std::string_view(reply_).substr(op_msg_prefix_bytes, size - op_msg_prefix_bytes);
  }

  void next_batch() {
    DocWriter command;
    if (cursor_id_ == 0) {
      scan_.restart();
      command.add_text("find", run_.collection);
    } else {
      command.add_int64("getMore", cursor_id_).add_text("collection", run_.collection);
    }
    const auto asked = SteadyClock::now();
    const std::string_view answer = ask(command.add_text("$db", "bench").take());
    const std::int64_t took = std::chrono::nanoseconds(SteadyClock::now() - asked).count();
    const auto cursor = answer.empty() ? std::nullopt : find_field(answer, "cursor");
    if (!cursor || !cursor->is_document()) {
      fault_ = answer.empty() ? "a reply did not come" : "a reply has no cursor";
      return;
    }
    auto batch = find_field(cursor->value, cursor_id_ == 0 ? "firstBatch" : "nextBatch");
    const auto id = find_field(cursor->value, "id");
    if (!batch || !batch->is_array() || !id || !id->integer()) {
      fault_ = "a reply has no batch";
      return;
    }
    FieldWalk walk(batch->value);
    while (const auto document = walk.next()) {
      ++checks_.documents;
      const auto read = read_document(document->value);
      if (read && document->value.size() == run_.shape.doc_bytes) {
        scan_.see(read->number, checks_);
      } else {
        ++checks_.changed;
      }
    }
    cursor_id_ = *id->integer();
    if (cursor_id_ == 0) scan_.finish(checks_);
    if (run_.phase == Phase::window) latency_ns_.record(static_cast<std::uint64_t>(took));
  }

  void kill_cursor() {
    DocWriter command;
    command.add_text("killCursors", run_.collection).open_array("cursors").add_int64("0", cursor_id_).close();
    if (ask(command.add_text("$db", "bench").take()).empty()) fault_ = "a cursor could not be ended";
  }

  Run& run_;
  ScanCheck scan_;
  int fd_ = -1;
  std::int32_t request_id_ = 0;
  std::int64_t cursor_id_ = 0;
  std::string reply_;
  Histogram latency_ns_;
  CheckCounts checks_;
  std::string fault_;
};

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fputs("usage: blocking_scans PORT COLLECTION CLIENTS WARMUP_S DURATION_S PEER_PID (0: none)\n", stderr);
    return 2;
  }
  Run run;
  run.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
  run.collection = argv[2];
  const int clients = std::atoi(argv[3]);
  const double warmup_s = std::atof(argv[4]);
  const double duration_s = std::atof(argv[5]);
  const pid_t peer = std::atoi(argv[6]);
  const auto shape = parse_shape(run.collection);
  if (!shape || clients < 1 || duration_s <= 0) return 2;
  run.shape = *shape;

  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&run] {
      BlockingClient client(run);
      client.scan_until_over();
      client.report();
    });
  }
  const auto sample = [&] { return peer > 0 ? sample_peer(peer).value_or(PeerSample{}) : PeerSample{}; };
  sleep_s(warmup_s);
  const PeerSample before = sample();
  const auto began = SteadyClock::now();
  run.phase = Phase::window;
  std::uint64_t rss_bytes_max = before.rss_bytes;
  while (SteadyClock::now() - began < std::chrono::duration<double>(duration_s)) {
    sleep_s(std::min(duration_s / 10, 0.05));
    rss_bytes_max = std::max(rss_bytes_max, sample().rss_bytes);
  }
  const PeerSample after = sample();
  run.phase = Phase::over;
  const double window_s = std::chrono::duration<double>(SteadyClock::now() - began).count();
  for (std::thread& thread : threads) thread.join();

  const bool clean = run.fault.empty() && run.checks.faults() == 0;
  const std::uint64_t batches = run.latency_ns.count();
  const auto us = [&](double percent) { return static_cast<double>(run.latency_ns.percentile(percent)) / 1e3; };
  std::printf("{\"window_s\": %.3f, \"clean\": %s, \"peer_cpu_s\": %.3f, \"peer_rss_bytes_max\": %" PRIu64
              ", \"scan\": {\"operations\": %" PRIu64 ", \"bytes\": %" PRIu64
              ", \"ops_per_s\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"lost\": %" PRIu64
              ", \"doubled\": %" PRIu64 ", \"changed\": %" PRIu64 ", \"unexpected\": %" PRIu64
              ", \"error_texts\": \"%s\"}}\n",
              window_s, clean ? "true" : "false", after.cpu_s - before.cpu_s, rss_bytes_max, batches, run.bytes.load(),
              static_cast<double>(batches) / window_s, us(50), us(99), us(99.9), run.checks.lost, run.checks.doubled,
              run.checks.changed, run.checks.unexpected, run.fault.c_str());
  return clean ? 0 : 1;
}
