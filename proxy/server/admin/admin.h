// AdminServer: the admin port. HTTP for monitoring, and for the actions of its page (admin_actions.h).
//
//   /metrics   Prometheus' text format (exec/admin/figures.h)
//   /healthz   200 while every loop gives a sign of life within health_patience, else 503
//   /          a page that shows /events: it needs nothing from elsewhere
//   /events    /live every second, as server-sent events; of at most admin_streams_max connections
//   /live      what `spillway top` shows, as JSON (exec/live_status.h); only to those on this machine with details
//   /readyz    200 when clients should connect: it listens, is not shutting down, and any shard can
//              be reached; else 503. The body says why.
//
// It has a thread of its own. Workers answer its questions between two requests and never wait for it. Connections,
// headers, times and memory (ProcessMemory::admin) are bounded. It ends last, so that a drain can be watched.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "allocator/mutex.h"
#include "proxy/base/file_descriptor.h"
#include "proxy/base/transport.h"
#include "proxy/config/config.h"
#include "proxy/exec/admin/status_facts.h"
#include "proxy/exec/core/context.h"
#include "proxy/server/admin/admin_actions.h"
#include "proxy/server/admin/admin_http.h"
#include "proxy/server/connections/offered_sockets.h"
#include "proxy/server/connections/worker.h"

namespace spillway::server {

struct AdminOptions {
  std::vector<std::string> addresses;  // numbers
  std::uint16_t port = 0;              // 0: a free one
  OfferedSockets* offered = nullptr;   // taken where they fit; null: none
};

inline constexpr std::size_t admin_connections_max = 16;
inline constexpr std::size_t admin_streams_max = 4;
// The bytes that ProcessMemory::admin needs for all connections, two pages and four live documents.
std::uint64_t admin_memory_bytes(std::size_t shards) noexcept;

class AdminServer {
 public:
  // Listens, without answers until answer_requests(). Throws std::runtime_error naming the address. `shared` and
  // `main_loop` outlive it.
  AdminServer(const exec::Services& shared, Loop& main_loop, const AdminOptions& options);
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  const std::string& address() const noexcept { return options_.addresses.front(); }
  // Its thread is there from now on. Throws std::system_error. The workers outlive it, but their threads do not: they
  // end before stop().
  void start(std::vector<Worker*> workers);
  // After start(): answers from now on.
  void answer_requests();
  // Any thread: clients are served from now on.
  void set_serving() noexcept { serving_ = true; }
  // Any thread: what the start waits for, for /readyz.
  void set_waiting(std::string why) {
    const MutexLock lock(waits_mutex_);
    waits_for_ = std::move(why);
  }
  // Copies of its sockets, for the process that replaces this one.
  std::vector<OfferedSocket> offer() const;
  // Another process answers from now on; what is under way goes on.
  void stop_listening();
  // Ends what is under way and the thread; again is harmless.
  void stop();

 private:
  class Door;
  struct Connection {
    std::unique_ptr<Transport> transport;
    Reservation memory;
    HttpReader reader;
    std::array<char, HttpReader::read_bytes> input;
    TimePoint idle_since{};
    bool idle = false;
    std::optional<TimePoint> writes_since;
  };
  // A live document, shared by all open pages.
  struct Shown {
    std::string text;
    Reservation memory;
  };
  struct Live {
    std::shared_ptr<const Shown> last;
    TimePoint made{};
    bool making = false;
  };
  struct Answer {
    unsigned status = 200;
    std::string_view content_type = "text/plain; charset=utf-8";
    std::string text = {};            // or
    std::vector<Buffer> pieces = {};  // in this order, or
    std::shared_ptr<const Shown> shown = {};
    std::string_view fixed = {};
    std::string_view rules = http_bare_rules;
    std::string_view allow = "GET, HEAD";  // with status 405
    std::string more = {};                 // of the head
    std::size_t bytes() const noexcept;
  };

  void adopt(FileDescriptor socket);
  bool has_room();
  void close_longest_idle(Duration at_least);
  Task<bool> write(Connection& connection, std::span<iovec> pieces);
  Task<void> run_connection(std::list<Connection>::iterator connection);
  Task<void> serve(Connection& connection);
  Task<HttpReader::State> read_request(Connection& connection);
  Task<bool> write_answer(Connection& connection, Answer answer, bool head_only, bool keep_alive);
  Task<void> linger(Connection& connection);
  Task<void> stream(Connection& connection, bool head_only, bool details);
  // Until then. True: the client has left, or should.
  Task<bool> hear_end(Connection& connection, TimePoint until);
  Task<Answer> answer(Connection& connection, bool local);
  Task<Answer> act(Connection& connection);
  Task<Answer> metrics();
  Task<Answer> health();
  Task<Answer> readiness();
  Task<Answer> live_page(bool details);
  // At most a second old; null: there is no memory for it.
  Task<std::shared_ptr<const Shown>> live(bool details);
  Task<std::vector<std::string>> silent_loops();
  std::vector<exec::Context*> live_contexts() const;
  // Those of `contexts` that answer in time. `contexts` outlives it.
  Task<std::vector<exec::WorkerFacts>> ask(const std::vector<exec::Context*>& contexts);
  void close_all();

  const exec::Services shared_;
  Loop& main_loop_;
  AdminOptions options_;
  std::uint16_t port_ = 0;
  Loop loop_;
  std::vector<std::unique_ptr<Door>> doors_;
  std::list<Connection> connections_;
  std::vector<Worker*> workers_;
  std::size_t streams_ = 0;
  std::array<Live, 2> live_;  // without details, and with them
  AdminActions actions_{shared_, loop_};
  std::thread thread_;
  std::atomic<bool> serving_{false};
  Mutex waits_mutex_;
  std::string waits_for_ ABSL_GUARDED_BY(waits_mutex_);
  bool stopping_ = false;  // the thread's own
};

}  // namespace spillway::server
