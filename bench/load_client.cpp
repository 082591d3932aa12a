#include "bench/load_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "bench/load_peer.h"
#include "bench/message.h"

namespace spillway::bench {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t sample_interval_ns = 50'000'000;
constexpr std::int64_t reconnect_after_ns = 20'000'000;
// After errors in a row: up to 100 ms, 200 ms, … 3.2 s, as drivers wait under back-pressure.
constexpr std::int64_t retry_base_ns = 100'000'000;
constexpr int retry_doublings_max = 5;
constexpr int refused_for_now = 462;  // IngressRequestRateLimitExceeded: the cursor may still live
constexpr std::int64_t drain_limit_ns = 10 * second_ns;
constexpr std::int64_t farewell_limit_ns = 2 * second_ns;
constexpr std::int64_t greeting_limit_ns = 10 * second_ns;
constexpr std::size_t point_room_bytes = 16 * 1024;
constexpr std::size_t scan_room_bytes = 128 * 1024;
constexpr std::size_t error_texts_max = 20;
constexpr std::size_t fill_batch_bytes = 1 << 20;

std::int64_t clock_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::int64_t to_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

double own_cpu_s() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15ULL;
  std::uint64_t value = state;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

struct LoadClient::Client {
  Client(Role role_given, CheckDepth depth, std::size_t doc_bytes)
      : role(role_given),
        reader(role_given == Role::scan ? scan_room_bytes : point_room_bytes),
        documents(depth, doc_bytes) {}

  Role role;
  int fd = -1;
  ReplyReader reader;
  std::string out;
  std::size_t out_sent_bytes = 0;
  std::string lsid;  // the session's id, 16 bytes, if sessions are used
  std::int32_t request_id = 0;
  bool greeted = false;
  bool busy = false;
  bool queued = false;  // in readable_scans_
  bool hung_up = false;  // its peer has ended the connection; bytes may be there still
  Nanoseconds due = 0;
  Nanoseconds scan_due = 0;  // of the scan that the operation belongs to
  std::int64_t wanted = 0;  // the number asked for; documents sent by an insert
  std::int64_t cursor_id = 0;
  int errors_in_a_row = 0;
  int scans_done = 0;
  bool first_batch = false;  // the last answer was a scan's first, and not its last
  DocumentCheck documents;
  std::vector<std::int64_t> numbers;  // of a point's answer
  std::unique_ptr<ScanCheck> scan;
};

LoadClient::LoadClient(const LoadOptions& options)
    : options_(options),
      point_shape_(*parse_shape(options.point_collection)),
      scan_shape_(*parse_shape(options.scan_collection)),
      events_(256),
      progress_(options.live),
      random_(options.seed) {
  if (options_.scenario == Scenario::storm) {
    options_.warmup_s = 0;  // its first moments are what it is about
    if (options_.hold_s <= 0) options_.hold_s = options_.duration_s + 1;
  }
  if (options_.scenario == Scenario::fill) {
    options_.insert_collection = options_.scan_collection;
    options_.insert_doc_bytes = scan_shape_.doc_bytes;
    options_.insert_batch = std::max<std::size_t>(1, fill_batch_bytes / scan_shape_.doc_bytes);
    insert_end_ = scan_shape_.count;
  } else {
    // Numbers that no earlier run has used, for servers that keep what they are given.
    next_insert_ = static_cast<std::int64_t>(std::time(nullptr)) << 20;
    insert_end_ = std::int64_t{1} << 62;
  }
  DocumentImages::Options images;
  images.doc_bytes = options_.insert_doc_bytes;
  images.seed = options.seed;
  insert_images_ = std::make_unique<DocumentImages>(images);
  const bool mixed = options.scenario == Scenario::mixed;
  const bool scans = options.scans_only();
  const bool points = mixed || options.scenario == Scenario::point;
  const auto add = [&](Role role, int count) {
    for (int at = 0; at < count; ++at) {
      const Shape& shape = role == Role::scan ? scan_shape_ : point_shape_;
      clients_.push_back(std::make_unique<Client>(role, options_.check, shape.doc_bytes));
      if (role == Role::scan) {
        clients_.back()->scan = std::make_unique<ScanCheck>(scan_shape_.count, options_.sorted());
      }
    }
  };
  add(scans ? Role::scan : points ? Role::point : Role::insert, options.connections);
  if (mixed) add(Role::scan, options.scan_connections);
}

LoadClient::~LoadClient() {
  for (const auto& client : clients_) {
    if (client->fd >= 0) close(client->fd);
  }
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

OperationReport& LoadClient::kind_of(const Client& client, LoadReport& report) const {
  switch (client.role) {
    case Role::point:
      return report.point;
    case Role::scan:
      return report.scan;
    default:
      return report.insert;
  }
}

bool LoadClient::connect_one(Client& client) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options_.port);
  if (inet_pton(AF_INET, options_.host.c_str(), &address.sin_addr) != 1) {
    errno = EADDRNOTAVAIL;
    return false;
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval limit{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);  // bounds connect, too
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &client;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    const int saved = errno;
    close(fd);
    errno = saved;
    return false;
  }
  client.fd = fd;
  client.greeted = false;
  if (options_.sessions && client.lsid.empty()) {
    for (int half = 0; half < 2; ++half) {
      const std::uint64_t value = next_random(random_);
      client.lsid.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  DocWriter hello;
  hello.add_int32("hello", 1).open_document("client");
  hello.open_document("application").add_text("name", "spillway load").close();
  hello.open_document("driver").add_text("name", "spillway load").add_text("version", "1").close();
  hello.open_document("os").add_text("type", "Linux").close().close();
  client.busy = true;
  ++busy_;
  send_request(client, hello.add_text("$db", "admin").take());
  return true;
}

bool LoadClient::connect_all(LoadReport& report) {
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  for (const auto& client : clients_) {
    if (!connect_one(*client)) {
      report.fatal = "connect to " + options_.host + ":" + std::to_string(options_.port) + ": " +
                     std::strerror(errno);
      return false;
    }
  }
  return true;
}

// Ends the connection, counts what it had under way, and has it replaced.
void LoadClient::drop(Client& client, LoadReport& report, const char* why) {
  OperationReport& kind = kind_of(client, report);
  if (client.busy && client.greeted) ++kind.broken;
  if (kind.error_texts.size() < error_texts_max) ++kind.error_texts[why];
  if (client.busy) --busy_;
  client.busy = false;
  close(client.fd);
  client.fd = -1;
  std::erase(idle_, &client);
  std::erase(readable_scans_, &client);
  std::erase_if(paced_, [&](const auto& entry) { return entry.second == &client; });
  client.queued = false;
  client.hung_up = false;
  client.out.clear();
  client.out_sent_bytes = 0;
  client.reader = ReplyReader(client.role == Role::scan ? scan_room_bytes : point_room_bytes);
  client.documents.discard();
  client.cursor_id = 0;
  client.first_batch = false;
  ++client.errors_in_a_row;
  client.numbers.clear();
  if (client.scan) client.scan->restart();
  to_reconnect_.emplace_back(now_ + reconnect_after_ns, &client);
}

void LoadClient::reconnect(Client& client) {
  if (!connect_one(client)) to_reconnect_.emplace_back(now_ + reconnect_after_ns, &client);
}

// ---- Sending ----------------------------------------------------------------------------------

void LoadClient::send_request(Client& client, const std::string& body, std::string_view sequence) {
  append_op_msg_prefix(client.out, body.size() + sequence.size(), ++client.request_id, 0);
  client.out.append(body).append(sequence);
  flush(client);
}

void LoadClient::flush(Client& client) {
  while (client.out_sent_bytes < client.out.size()) {
    const ssize_t sent =
        send(client.fd, client.out.data() + client.out_sent_bytes,
             client.out.size() - client.out_sent_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;  // EPOLLOUT continues; a dead connection is noticed by its events
    client.out_sent_bytes += static_cast<std::size_t>(sent);
  }
  client.out.clear();
  client.out_sent_bytes = 0;
}

namespace {
void add_session(DocWriter& command, const std::string& lsid) {
  if (lsid.empty()) return;
  std::string id(5, '\0');
  id[0] = 16;
  id[4] = 4;  // binary subtype: UUID
  command.open_document("lsid").add_raw(bson::binary_type, "id", id + lsid).close();
}
}  // namespace

void LoadClient::send_point(Client& client) {
  client.wanted = static_cast<std::int64_t>(next_random(random_) %
                                            static_cast<std::uint64_t>(point_shape_.count));
  DocWriter command;
  command.add_text("find", options_.point_collection).open_document("filter");
  command.add_int64("_id", client.wanted).close();
  command.add_int32("limit", 1).add_bool("singleBatch", true);
  add_session(command, client.lsid);
  send_request(client, command.add_text("$db", options_.db).take());
}

void LoadClient::send_scan(Client& client) {
  DocWriter command;
  if (client.cursor_id == 0) {
    client.scan->restart();
    command.add_text("find", options_.scan_collection);
    command.open_document("filter").close();
    if (options_.sorted()) {
      command.open_document("sort").add_int32("_id", 1).close();
    }
  } else {
    command.add_int64("getMore", client.cursor_id);
    command.add_text("collection", options_.scan_collection);
  }
  if (options_.batch_size >= 0) command.add_int64("batchSize", options_.batch_size);
  add_session(command, client.lsid);
  send_request(client, command.add_text("$db", options_.db).take());
}

void LoadClient::send_insert(Client& client) {
  const std::int64_t count = std::min<std::int64_t>(
      static_cast<std::int64_t>(options_.insert_batch), insert_end_ - next_insert_);
  DocWriter command;
  command.add_text("insert", options_.insert_collection).add_bool("ordered", !options_.unordered);
  add_session(command, client.lsid);
  std::string sequence(5, '\0');
  sequence[0] = 1;
  sequence.append("documents", 10);
  for (std::int64_t done = 0; done < count;) {
    const auto run = insert_images_->stamp_bare(next_insert_ + done,
                                                static_cast<std::size_t>(count - done), 1 << 20);
    sequence.append(run.bytes, run.elements * run.element_bytes);
    done += static_cast<std::int64_t>(run.elements);
  }
  store_bytes(sequence.data() + 1, static_cast<std::int32_t>(sequence.size() - 1));
  next_insert_ += count;
  client.wanted = count;
  send_request(client, command.add_text("$db", options_.db).take(), sequence);
}

void LoadClient::start_operation(Client& client, Nanoseconds due) {
  client.busy = true;
  ++busy_;
  client.due = due;
  switch (client.role) {
    case Role::point:
      return send_point(client);
    case Role::scan:
      if (client.cursor_id == 0) client.scan_due = due;
      return send_scan(client);
    case Role::insert:
      return send_insert(client);
  }
}

// Hands operations that are due to idle connections.
void LoadClient::dispatch() {
  if (!takes_operations()) return;
  while (!paced_.empty() && paced_.front().first <= now_) {
    Client& client = *paced_.front().second;
    paced_.pop_front();
    start_operation(client, now_);
  }
  while (!idle_.empty() && next_insert_ < insert_end_) {
    Nanoseconds due = now_;
    if (!options_.closed()) {
      due = start_ +
            static_cast<Nanoseconds>(static_cast<double>(next_operation_) * 1e9 / options_.rate);
      if (due > now_) return;
    }
    ++next_operation_;
    Client& client = *idle_.back();
    idle_.pop_back();
    start_operation(client, due);
  }
}

// ---- Receiving --------------------------------------------------------------------------------

void LoadClient::receive(Client& client, LoadReport& report) {
  const auto room = client.reader.room();
  const ssize_t got = recv(client.fd, room.data(), room.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    client.queued = false;
    return;
  }
  if (got <= 0) return drop(client, report, "the connection was closed by the peer");
  const auto bytes = static_cast<std::size_t>(got);
  client.reader.received(bytes);
  now_ = clock_ns();
  if (phase_ == Phase::window) kind_of(client, report).bytes += bytes;
  if (client.role == Role::scan) scan_bytes_ += bytes;
  // Edge-triggered: a full read may have left something behind, and the end comes after the last bytes.
  client.queued = bytes == room.size() || client.hung_up;
  read_replies(client, report);
  if (client.fd >= 0 && client.queued) readable_scans_.push_back(&client);
}

void LoadClient::read_replies(Client& client, LoadReport& report) {
  OperationReport& kind = kind_of(client, report);
  const auto sink = [&](std::int64_t number) {
    if (client.role == Role::scan) {
      client.scan->see(number, kind.checks);
    } else {
      client.numbers.push_back(number);
    }
  };
  while (true) {
    switch (client.reader.step()) {
      case ReplyReader::Step::document:
        client.documents.add(client.reader.document(), kind.checks, sink);
        break;
      case ReplyReader::Step::reply:
        client.documents.flush(kind.checks, sink);
        on_reply(client, report);
        if (client.fd < 0) return;
        break;
      case ReplyReader::Step::broken:
        return drop(client, report, client.reader.error().c_str());
      case ReplyReader::Step::need_bytes:
        client.documents.flush(kind.checks, sink);
        return;
    }
  }
}

void LoadClient::on_reply(Client& client, LoadReport& report) {
  const ReplySummary& summary = client.reader.summary();
  OperationReport& kind = kind_of(client, report);
  if (!client.busy || summary.response_to != client.request_id) {
    return drop(client, report, "an answer that nobody asked for");
  }
  client.busy = false;
  --busy_;
  if (!client.greeted) {
    client.greeted = true;
    if (summary.ok != 1) note_error(kind, summary);
    if (client.role == Role::scan && !options_.open_scans()) {
      schedule(client.errors_in_a_row > 0 ? next_batch_at(client, false) : 0, client);
    } else {
      idle_.push_back(&client);
    }
    return;
  }
  if (phase_ == Phase::farewell) return;
  const bool good = summary.ok == 1 && !summary.has_write_errors;
  if (!good) note_error(kind, summary);
  if (client.role == Role::point && good) check_point(client, kind);
  if (client.role == Role::insert && good && summary.n != client.wanted) {
    kind.checks.lost +=
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, client.wanted - summary.n));
  }
  if (client.role == Role::scan) {
    client.first_batch = good && client.cursor_id == 0 && summary.cursor_id != 0;
    if (good || summary.code != refused_for_now) client.cursor_id = good ? summary.cursor_id : 0;
    if (good) check_scan(client, kind);
  }
  client.numbers.clear();
  finish_operation(client, kind, good);
}

void LoadClient::check_point(Client& client, OperationReport& kind) {
  const auto documents = client.reader.summary().documents;
  if (documents == 0) ++kind.checks.lost;
  if (documents > 1) kind.checks.doubled += static_cast<std::uint64_t>(documents - 1);
  if (!client.numbers.empty() && client.numbers[0] != client.wanted) ++kind.checks.unexpected;
}

void LoadClient::check_scan(Client& client, OperationReport& kind) {
  if (client.cursor_id != 0) return;
  ++kind.scans;
  ++client.scans_done;
  if (options_.check != CheckDepth::none) client.scan->finish(kind.checks);
}

void LoadClient::note_error(OperationReport& kind, const ReplySummary& summary) {
  ++kind.errors;
  const std::string code = std::to_string(summary.code);
  const std::string labels = summary.labels.empty() ? "" : " [" + summary.labels + "]";
  ++kind.error_codes[code + labels];
  const std::string text = code + ": " + summary.message.substr(0, 160) + labels;
  if (kind.error_texts.size() < error_texts_max || kind.error_texts.contains(text)) {
    ++kind.error_texts[text];
  }
}

void LoadClient::schedule(Nanoseconds at, Client& client) {
  const auto later = [](Nanoseconds due, const auto& entry) { return due < entry.first; };
  paced_.emplace(std::upper_bound(paced_.begin(), paced_.end(), at, later), at, &client);
}

// When a scan's next command is due: at once, but for its pace, its pause and its errors.
LoadClient::Nanoseconds LoadClient::next_batch_at(Client& client, bool good) {
  client.errors_in_a_row = good ? 0 : client.errors_in_a_row + 1;
  if (!good) {
    const int doublings = std::min(client.errors_in_a_row - 1, retry_doublings_max);
    return now_ + static_cast<Nanoseconds>(next_random(random_) %
                                           static_cast<std::uint64_t>(retry_base_ns << doublings));
  }
  if (client.first_batch && options_.hold_s > 0) return now_ + to_ns(options_.hold_s);
  if (options_.scan_mb_per_s <= 0) return now_;
  return start_ +
         static_cast<Nanoseconds>(static_cast<double>(scan_bytes_) * 1e3 / options_.scan_mb_per_s);
}

bool LoadClient::all_scanned() const noexcept {
  if (options_.scans_each == 0) return false;
  return std::all_of(clients_.begin(), clients_.end(), [&](const auto& client) {
    return client->role != Role::scan || client->scans_done >= options_.scans_each;
  });
}

void LoadClient::finish_operation(Client& client, OperationReport& kind, bool good) {
  if (phase_ == Phase::window) ++kind.operations;
  // What was due by the end of the window counts even when its answer comes later.
  const bool measured =
      phase_ == Phase::window || (phase_ == Phase::drain && client.due < window_end_);
  if (measured) {
    const auto latency = static_cast<std::uint64_t>(std::max<Nanoseconds>(0, now_ - client.due));
    kind.latency_ns.record(latency);
    if (options_.progress) kind.recent_ns.record(latency);
    if (client.role == Role::scan && good && client.cursor_id == 0) {
      kind.whole_scan_ns.record(
          static_cast<std::uint64_t>(std::max<Nanoseconds>(0, now_ - client.scan_due)));
    }
    if (client.role == Role::point && options_.series_s > 0) {
      const auto stretch = static_cast<std::size_t>(
          std::max<Nanoseconds>(0, client.due - window_start_) / to_ns(options_.series_s));
      if (stretch >= kind.series_ns.size()) kind.series_ns.resize(stretch + 1);
      kind.series_ns[stretch].record(latency);
    }
  }
  if (client.role != Role::scan) {
    idle_.push_back(&client);
    return;
  }
  if (options_.scans_each > 0 && client.scans_done >= options_.scans_each) return;
  // The next scan of an open loop comes when one is due; a refused one was one.
  if (options_.open_scans() && client.cursor_id == 0) {
    idle_.push_back(&client);
    return;
  }
  const Nanoseconds at = next_batch_at(client, good);
  if (at <= now_ && takes_operations()) {
    start_operation(client, now_);
  } else {
    schedule(at, client);
  }
}

// ---- The run ----------------------------------------------------------------------------------

void LoadClient::sample_memory(LoadReport& report) {
  next_sample_ = now_ + sample_interval_ns;
  if (!options_.peer_pid || phase_ != Phase::window) return;
  if (const auto sample = sample_peer(*options_.peer_pid)) {
    report.peer_rss_bytes_max = std::max(report.peer_rss_bytes_max, sample->rss_bytes);
  }
}

void LoadClient::show_progress(LoadReport& report) {
  if (!options_.progress || phase_ != Phase::window || now_ < next_progress_) return;
  next_progress_ = now_ + second_ns;
  const auto text = progress_.tick(report, static_cast<double>(now_ - window_start_) / 1e9);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void LoadClient::start_window(LoadReport& report) {
  phase_ = Phase::window;
  window_start_ = now_;
  phase_end_ = now_ + to_ns(options_.duration_s);
  next_progress_ = now_ + second_ns;
  own_cpu_start_ = own_cpu_s();
  if (options_.peer_pid) {
    const auto sample = sample_peer(*options_.peer_pid);
    if (!sample) report.fatal = "there is no process " + std::to_string(*options_.peer_pid);
    if (sample) peer_cpu_start_ = sample->cpu_s;
  }
  sample_memory(report);
}

void LoadClient::end_window(LoadReport& report) {
  sample_memory(report);
  window_end_ = now_;
  report.window_s = static_cast<double>(now_ - window_start_) / 1e9;
  report.own_cpu_s = own_cpu_s() - own_cpu_start_;
  if (options_.peer_pid) {
    if (const auto sample = sample_peer(*options_.peer_pid)) {
      report.peer_cpu_s = sample->cpu_s - peer_cpu_start_;
    }
  }
  if (!options_.closed()) {
    const double due = static_cast<double>(now_ - start_) / 1e9 * options_.rate;
    const double behind = due - static_cast<double>(next_operation_);
    report.not_sent = behind > 1 ? static_cast<std::uint64_t>(behind) : 0;
  }
  phase_ = Phase::drain;
  phase_end_ = now_ + drain_limit_ns;
}

// Ends the cursors that scans leave behind.
void LoadClient::say_farewell() {
  phase_ = Phase::farewell;
  phase_end_ = now_ + farewell_limit_ns;
  for (const auto& client : clients_) {
    if (client->fd < 0 || client->busy || client->cursor_id == 0) continue;
    DocWriter command;
    command.add_text("killCursors", options_.scan_collection).open_array("cursors");
    command.add_int64("0", client->cursor_id).close();
    add_session(command, client->lsid);
    client->busy = true;
    ++busy_;
    send_request(*client, command.add_text("$db", options_.db).take());
  }
}

void LoadClient::advance_phase(LoadReport& report) {
  if (phase_ == Phase::greeting && busy_ == 0) {
    phase_ = Phase::warmup;
    start_ = now_;
    // A fill is measured as a whole.
    phase_end_ = now_ + (options_.scenario == Scenario::fill ? 0 : to_ns(options_.warmup_s));
  } else if (phase_ == Phase::greeting && now_ >= phase_end_) {
    report.fatal = "the server does not answer hello";
  }
  if (phase_ == Phase::warmup && now_ >= phase_end_) start_window(report);
  const bool complete = all_scanned() || (options_.scenario == Scenario::fill &&
                                          next_insert_ >= insert_end_ && busy_ == 0);
  const bool time_is_up = options_.scenario != Scenario::fill && now_ >= phase_end_;
  if (phase_ == Phase::window && (time_is_up || complete)) end_window(report);
  if (phase_ == Phase::drain && (busy_ == 0 || now_ >= phase_end_)) {
    for (const auto& client : clients_) {
      if (client->busy) ++kind_of(*client, report).unanswered;
    }
    say_farewell();
  }
}

LoadClient::Nanoseconds LoadClient::next_wakeup() const {
  Nanoseconds at = std::min(next_sample_, phase_end_);
  if (options_.progress && phase_ == Phase::window) at = std::min(at, next_progress_);
  if (takes_operations()) {
    if (!paced_.empty()) at = std::min(at, paced_.front().first);
    if (!options_.closed() && !idle_.empty()) {
      at = std::min(at, start_ + static_cast<Nanoseconds>(static_cast<double>(next_operation_) *
                                                          1e9 / options_.rate));
    }
  }
  for (const auto& [due, client] : to_reconnect_) at = std::min(at, due);
  return at;
}

void LoadClient::wait(std::vector<epoll_event>& events, int& ready) {
  const Nanoseconds left =
      readable_scans_.empty() ? std::max<Nanoseconds>(0, next_wakeup() - clock_ns()) : 0;
  const timespec timeout{left / second_ns, left % second_ns};
  ready =
      epoll_pwait2(epoll_fd_, events.data(), static_cast<int>(events.size()), &timeout, nullptr);
  now_ = clock_ns();
}

// Waits for events, handles points and inserts at once, then one piece of one scan.
void LoadClient::turn(LoadReport& report) {
  int ready = 0;
  wait(events_, ready);
  for (int at = 0; at < ready; ++at) {
    const epoll_event& event = events_[static_cast<std::size_t>(at)];
    Client& client = *static_cast<Client*>(event.data.ptr);
    if (client.fd < 0) continue;
    if ((event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) client.hung_up = true;
    if ((event.events & EPOLLOUT) != 0) flush(client);
    if ((event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0) continue;
    if (client.role != Role::scan) {
      receive(client, report);
    } else if (!client.queued) {
      client.queued = true;
      readable_scans_.push_back(&client);
    }
  }
  if (!readable_scans_.empty()) {
    Client& client = *readable_scans_.front();
    readable_scans_.pop_front();
    receive(client, report);
  }
  std::vector<std::pair<Nanoseconds, Client*>> due;
  std::erase_if(to_reconnect_, [&](const auto& entry) {
    if (entry.first > now_) return false;
    due.push_back(entry);
    return true;
  });
  for (const auto& [at, client] : due) reconnect(*client);
  if (now_ >= next_sample_) sample_memory(report);
  show_progress(report);
  advance_phase(report);
  dispatch();
}

void LoadClient::run(LoadReport& report) {
  prctl(PR_SET_TIMERSLACK, 1);  // the default of 50 us would be added to every due moment
  if (!connect_all(report)) return;
  now_ = clock_ns();
  phase_end_ = now_ + greeting_limit_ns;
  next_sample_ = now_ + sample_interval_ns;
  while (report.fatal.empty()) {
    turn(report);
    if (phase_ == Phase::farewell && (busy_ == 0 || now_ >= phase_end_)) return;
  }
}

}  // namespace spillway::bench
