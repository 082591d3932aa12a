// The load generator itself: one thread, one epoll, a connection per simulated client, one
// operation outstanding on each.
//
// Open loop: operation k is due at start + k / rate whatever the server does; a free connection
// takes it, and its latency counts from the moment at which it was due, so that a stall is seen by
// every operation that it delayed. Closed loop: a connection's next operation follows the last
// answer. Scans are closed loops by nature: an operation is one batch.
//
// Point answers are handled before scan data, and scan data in pieces, so that the generator itself
// adds little to the latencies that it measures.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bench/load_checks.h"
#include "bench/load_options.h"
#include "bench/load_progress.h"
#include "bench/load_report.h"
#include "bench/reply_reader.h"

namespace spillway::bench {

class LoadClient {
 public:
  explicit LoadClient(const LoadOptions& options);
  ~LoadClient();
  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  // Connects, warms up, measures, lets what is under way finish, ends the cursors that are left.
  // Blocks for all of it. `report` is large: give it a home on the heap.
  void run(LoadReport& report);

 private:
  enum class Role { point, scan, insert };
  enum class Phase { greeting, warmup, window, drain, farewell };
  struct Client;
  using Nanoseconds = std::int64_t;

  bool connect_all(LoadReport& report);
  bool connect_one(Client& client);
  void reconnect(Client& client);
  void drop(Client& client, LoadReport& report, const char* why);

  void turn(LoadReport& report);
  void wait(std::vector<epoll_event>& events, int& ready);
  Nanoseconds next_wakeup() const;
  void advance_phase(LoadReport& report);
  void start_window(LoadReport& report);
  void end_window(LoadReport& report);
  void sample_memory(LoadReport& report);
  void show_progress(LoadReport& report);

  void dispatch();
  void start_operation(Client& client, Nanoseconds due);
  void send_request(Client& client, const std::string& body, std::string_view sequence = {});
  void send_point(Client& client);
  void send_scan(Client& client);
  void send_insert(Client& client);
  void flush(Client& client);

  void receive(Client& client, LoadReport& report);
  void read_replies(Client& client, LoadReport& report);
  void on_reply(Client& client, LoadReport& report);
  void check_point(Client& client, OperationReport& kind);
  void check_scan(Client& client, OperationReport& kind);
  void note_error(OperationReport& kind, const ReplySummary& summary);
  void finish_operation(Client& client, OperationReport& kind, bool good);
  Nanoseconds next_batch_at(Client& client, bool good);
  void schedule(Nanoseconds at, Client& client);
  bool all_scanned() const noexcept;
  void say_farewell();

  OperationReport& kind_of(const Client& client, LoadReport& report) const;
  bool takes_operations() const noexcept {
    return phase_ == Phase::warmup || phase_ == Phase::window;
  }

  LoadOptions options_;
  Shape point_shape_;
  Shape scan_shape_;
  std::unique_ptr<DocumentImages> insert_images_;
  int epoll_fd_ = -1;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Client*> idle_;                          // free to take an operation that is due
  std::deque<Client*> readable_scans_;                 // one piece of one of them per turn
  std::deque<std::pair<Nanoseconds, Client*>> paced_;  // scans that wait for their moment, in order
  std::vector<std::pair<Nanoseconds, Client*>> to_reconnect_;
  std::vector<epoll_event> events_;

  Phase phase_ = Phase::greeting;
  Nanoseconds now_ = 0;
  Nanoseconds start_ = 0;
  Nanoseconds window_start_ = 0;
  Nanoseconds window_end_ = 0;
  Nanoseconds phase_end_ = 0;
  Nanoseconds next_sample_ = 0;
  Nanoseconds next_progress_ = 0;
  Progress progress_;
  std::uint64_t next_operation_ = 0;
  std::uint64_t scan_bytes_ = 0;
  std::int64_t next_insert_ = 0;
  std::int64_t insert_end_ = 0;  // fill: one past the last number
  std::size_t busy_ = 0;
  std::uint64_t random_ = 0;
  double own_cpu_start_ = 0;
  double peer_cpu_start_ = 0;
};

}  // namespace spillway::bench
