#include "proxy/server/admin/admin.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "proxy/auth/crypto.h"
#include "proxy/base/log.h"
#include "proxy/base/poller.h"
#include "proxy/base/tcp_transport.h"
#include "proxy/config/text.h"
#include "proxy/exec/admin/figures.h"
#include "proxy/exec/admin/live_status.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/server/admin/admin_page.h"

namespace spillway::server {

namespace {

constexpr int backlog = 64;
constexpr Duration idle_patience = std::chrono::seconds(120);  // for the next request
constexpr Duration request_patience =
    std::chrono::seconds(10);  // for the rest of one, and for taking an answer
constexpr Duration linger_patience = std::chrono::seconds(1);
constexpr Duration write_patience = std::chrono::seconds(1);  // while others wait for a place
constexpr std::size_t linger_bytes_max = 256 * limits::kib;
constexpr Duration accept_pause = std::chrono::milliseconds(100);
constexpr Duration room_pause = std::chrono::milliseconds(5);
constexpr Duration worker_patience = std::chrono::seconds(1);
constexpr Duration health_patience = std::chrono::seconds(2);
constexpr std::uint64_t session_bytes = 32 * limits::kib;
constexpr Duration live_pause = std::chrono::milliseconds(900);  // a little less than the pause of the page and of top
constexpr Duration stream_pause = std::chrono::seconds(1);
constexpr std::string_view event_begin = "data: ", event_end = "\n\n";
constexpr std::string_view metrics_type = "text/plain; version=0.0.4; charset=utf-8";

FileDescriptor open_door(const std::string& address, std::uint16_t port, OfferedSockets* offered) {
  boost::system::error_code not_numeric;
  const asio::ip::tcp::endpoint endpoint(asio::ip::make_address(address, not_numeric), port);
  if (not_numeric) {
    throw std::runtime_error(fmt::format("net.admin.bindIp: \"{}\" is no address", address));
  }
  if (offered != nullptr) {
    if (FileDescriptor taken = offered->take(SocketUse::admin, endpoint)) return taken;
  }
  FileDescriptor door(::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  bool good = static_cast<bool>(door);
  good = good && ::setsockopt(door.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
  std::optional<SharedPort> shared;
  if (good && offered != nullptr) shared.emplace(*offered, port, door.get());
  if (good && endpoint.address().is_v6()) {
    good = ::setsockopt(door.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0;
  }
  good = good && ::bind(door.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0;
  good = good && ::listen(door.get(), backlog) == 0;
  if (!good) {
    throw std::runtime_error(fmt::format("cannot listen on {}:{} (net.admin): {}", address, port,
                                         std::generic_category().message(errno)));
  }
  return door;
}

// Which of several loops give a sign of life. The posted calls share it.
struct SignsOfLife final : Timer {
  Event done;
  std::vector<bool> given;  // written on the asking loop only
  std::size_t waiting = 0;
  void on_timer() override { done.set(); }
};

// One more while it lives.
class Counted {
 public:
  explicit Counted(std::size_t& count) : count_(count) { ++count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --count_; }

 private:
  std::size_t& count_;
};

// 'sha256-…' of the text between the page's only <tag> and </tag>.
std::string hash_of(std::string_view tag) {
  const std::string begin = fmt::format("<{}>", tag);
  const std::size_t from = admin_page.find(begin) + begin.size();
  const std::string_view text = admin_page.substr(from, admin_page.find(fmt::format("</{}>", tag)) - from);
  return fmt::format("'sha256-{}'", auth::to_base64(auth::digest(auth::Hash::sha256, auth::bytes_of(text)).view()));
}

// The page needs nothing but itself and its events, runs nothing but itself, and is no part of another page.
const std::string& page_rules() {
  static const std::string rules = fmt::format(
      "default-src 'none'; script-src {}; style-src {}; img-src data:; connect-src 'self'; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'",
      hash_of("script"), hash_of("style"));
  return rules;
}

std::uint64_t live_bytes(std::size_t shards) noexcept {
  return exec::live_bytes_max + shards * exec::live_shard_bytes_max;
}

}  // namespace

std::uint64_t admin_memory_bytes(std::size_t shards) noexcept {
  constexpr std::uint64_t page_bytes = 256 * limits::kib;
  constexpr std::uint64_t shard_bytes = 4 * limits::kib;
  return admin_connections_max * session_bytes + AdminSessions::memory_bytes +
         2 * (page_bytes + shards * shard_bytes) + 4 * live_bytes(shards);
}

std::size_t AdminServer::Answer::bytes() const noexcept {
  std::size_t all = text.size() + fixed.size() + (shown ? shown->text.size() : 0);
  for (const Buffer& piece : pieces) all += piece.size();
  return all;
}

// --- the door

// Takes connections; at home on the admin loop once it watches.
class AdminServer::Door final : public Poller::Socket, private Timer {
 public:
  Door(AdminServer& server, FileDescriptor socket) : server_(server), socket_(std::move(socket)) {}
  ~Door() override { SPILLWAY_CHECK(!watching_); }

  std::uint16_t port() const { return listening_endpoint(socket_.get())->port(); }
  int socket() const noexcept { return socket_.get(); }
  void watch() {
    watching_ = Poller::of(server_.loop_).add(socket_.get(), *this);
    keep_spare();
    if (!watching_) log::error("the admin port cannot be watched: it answers no request");
  }
  void close() {
    if (std::exchange(watching_, false)) Poller::of(server_.loop_).remove(socket_.get(), *this);
    server_.loop_.disarm(*this);
    socket_.reset();
    next_.reset();
    spare_.reset();
  }
  // A connection must be taken when clients have all other files: a probe without an answer has the process restarted.
  void keep_spare() {
    if (socket_ && !spare_) spare_ = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  void on_events(std::uint32_t) override { accept_all(); }

 private:
  // There was no room, or file descriptors were short. Waiting connections are signalled only once.
  void on_timer() override { accept_all(); }
  void accept_all() {
    for (;;) {
      if (!next_) next_ = accept_next();
      if (!next_ && is_short_of_files() && spare_) {
        spare_.reset();
        next_ = accept_next();
      }
      if (next_) {
        if (!server_.has_room()) return arm(room_pause);
        server_.adopt(std::exchange(next_, {}));
        continue;
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      const bool failed = errno != EAGAIN && errno != EWOULDBLOCK;
      keep_spare();
      if (!failed || !one_waits()) return;
      if (!spare_) server_.close_longest_idle(accept_pause);
      return arm(accept_pause);
    }
  }
  FileDescriptor accept_next() const {
    return FileDescriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }
  bool one_waits() const {
    pollfd one{socket_.get(), POLLIN, 0};
    return ::poll(&one, 1, 0) > 0;
  }
  static bool is_short_of_files() noexcept { return errno == EMFILE || errno == ENFILE; }
  void arm(Duration pause) {
    if (!armed()) server_.loop_.arm(*this, Clock::now() + pause);
  }

  AdminServer& server_;
  FileDescriptor socket_;
  FileDescriptor next_;   // waits for room
  FileDescriptor spare_;  // gives its place to a connection when files are short
  bool watching_ = false;
};

AdminServer::AdminServer(const exec::Services& shared, Loop& main_loop, const AdminOptions& options)
    : shared_(shared), main_loop_(main_loop), options_(options), port_(options.port) {
  for (const std::string& address : options_.addresses) {
    doors_.push_back(std::make_unique<Door>(*this, open_door(address, port_, options_.offered)));
    if (port_ == 0) port_ = doors_.back()->port();
  }
  options_.offered = nullptr;
}

AdminServer::~AdminServer() { stop(); }

std::vector<OfferedSocket> AdminServer::offer() const {
  std::vector<OfferedSocket> offered;
  for (const auto& door : doors_) offered.push_back({SocketUse::admin, options_.port, duplicate(door->socket())});
  return offered;
}

void AdminServer::start(std::vector<Worker*> workers) {
  workers_ = std::move(workers);
  Poller::of(loop_);  // it may fail, too
  thread_ = std::thread([this] {
    log::name_thread("admin");
    loop_.run();
  });
}

void AdminServer::answer_requests() {
  loop_.post([this] {
    for (const auto& door : doors_) door->watch();
  });
}

void AdminServer::stop() {
  if (!thread_.joinable()) return;
  loop_.post([this] { close_all(); });
  thread_.join();
  live_ = {};
}

void AdminServer::stop_listening() {
  loop_.post([this] {
    for (const auto& door : doors_) door->close();
    for (Connection& connection : connections_) {
      if (connection.idle) connection.transport->close();
    }
  });
}

void AdminServer::close_all() {
  stopping_ = true;
  actions_.end();
  for (const auto& door : doors_) door->close();
  for (Connection& connection : connections_) connection.transport->cancel();
  if (connections_.empty()) loop_.stop();
}

// --- connections

void AdminServer::adopt(FileDescriptor socket) {
  if (stopping_) return;
  auto memory = shared_.memory.admin.try_reserve(session_bytes);
  if (!memory) return;
  auto transport = adopt_tcp_transport(loop_, std::move(socket));
  if (!transport) return;
  Connection& connection = connections_.emplace_back();
  connection.transport = std::move(transport);
  connection.memory = *std::move(memory);
  loop_.spawn(run_connection(std::prev(connections_.end())));
}

// When it is full, the connection that has been idle for longest is closed, or the one whose peer has not taken what is
// written to it for longest; it leaves a moment later.
bool AdminServer::has_room() {
  if (connections_.size() < admin_connections_max) return true;
  close_longest_idle({});
  return false;
}

void AdminServer::close_longest_idle(Duration at_least) {
  const TimePoint before = Clock::now() - at_least;
  Connection* longest = nullptr;
  for (Connection& connection : connections_) {
    if (!connection.idle || connection.idle_since > before) continue;
    if (longest == nullptr || connection.idle_since < longest->idle_since) longest = &connection;
  }
  if (longest != nullptr) return longest->transport->close();
  const TimePoint began_before = Clock::now() - write_patience;
  for (Connection& connection : connections_) {
    if (!connection.writes_since || *connection.writes_since > began_before) continue;
    if (longest == nullptr || connection.writes_since < longest->writes_since) longest = &connection;
  }
  if (longest != nullptr) longest->transport->cancel();
}

Task<bool> AdminServer::write(Connection& connection, std::span<iovec> pieces) {
  const TimePoint end = Clock::now() + (stopping_ ? linger_patience : request_patience);
  bool written = false;
  for (std::size_t left = bytes_of(pieces); !written;) {
    connection.writes_since = connection.writes_since.value_or(Clock::now());
    const TimePoint until = std::min(end, Clock::now() + write_patience);
    WriteAll writing(*connection.transport, pieces, until);
    written = co_await writing;
    if (written || Clock::now() < until || until == end) break;
    pieces = writing.rest();
    if (const std::size_t rest = bytes_of(pieces); std::exchange(left, rest) != rest) connection.writes_since.reset();
  }
  connection.writes_since.reset();
  co_return written;
}

Task<void> AdminServer::run_connection(std::list<Connection>::iterator connection) {
  co_await serve(*connection);
  connection->transport->close();
  connections_.erase(connection);
  for (const auto& door : doors_) door->keep_spare();
  if (stopping_ && connections_.empty()) loop_.stop();
}

Task<void> AdminServer::serve(Connection& connection) {
  for (;;) {
    const HttpReader::State state = co_await read_request(connection);
    if (state == HttpReader::State::more) co_return;
    if (state == HttpReader::State::bad) {
      const HttpRefusal& refusal = connection.reader.refusal();
      Answer refused{.status = refusal.status, .text = std::string(refusal.why)};
      auto refusing = write_answer(connection, std::move(refused), false, false);
      const bool written = co_await refusing;
      if (!written) co_return;
      co_await linger(connection);
      co_return;
    }
    const HttpRequest& request = connection.reader.request();
    const bool local = is_local(request, connection.transport->peer());
    if (request.path == "/events" && !request.post && !is_of_other_site(request) && streams_ < admin_streams_max) {
      co_await stream(connection, request.head_only, local);
      co_return;
    }
    Answer answered = co_await answer(connection, local);
    const bool keep_alive = request.keep_alive && !stopping_;
    auto writing = write_answer(connection, std::move(answered), request.head_only, keep_alive);
    const bool written = co_await writing;
    if (!written || !keep_alive) co_return;
  }
}

// `more`: the connection is to end without a word.
Task<HttpReader::State> AdminServer::read_request(Connection& connection) {
  HttpReader::State state = connection.reader.next();
  TimePoint until = Clock::now() + (connection.reader.begun() ? request_patience : idle_patience);
  while (state == HttpReader::State::more) {
    const IoResult got = connection.transport->try_read(
        {reinterpret_cast<std::uint8_t*>(connection.input.data()), connection.input.size()});
    if (got.ok()) {
      if (!connection.reader.begun()) until = Clock::now() + request_patience;
      state = connection.reader.feed({connection.input.data(), got.bytes});
      auth::wipe(connection.input.data(), got.bytes);  // it may have a password
      continue;
    }
    if (!got.would_block() || stopping_) co_return HttpReader::State::more;
    connection.idle = true;
    connection.idle_since = Clock::now();
    ReadyWait readable(*connection.transport, Transport::Direction::read, until);
    const bool ready = co_await readable;
    connection.idle = false;
    if (!ready) co_return HttpReader::State::more;
  }
  co_return state;
}

Task<bool> AdminServer::write_answer(Connection& connection, Answer answer, bool head_only,
                                     bool keep_alive) {
  const std::string head = http_head({.status = answer.status,
                                      .content_type = answer.content_type,
                                      .content_bytes = answer.bytes(),
                                      .keep_alive = keep_alive,
                                      .wall_ms = wall_clock_ms(),
                                      .allow = answer.allow,
                                      .rules = answer.rules,
                                      .more = answer.more});
  std::vector<iovec> pieces{{const_cast<char*>(head.data()), head.size()}};
  if (!head_only) {
    if (!answer.text.empty()) pieces.push_back({answer.text.data(), answer.text.size()});
    if (!answer.fixed.empty()) pieces.push_back({const_cast<char*>(answer.fixed.data()), answer.fixed.size()});
    if (answer.shown) pieces.push_back({const_cast<char*>(answer.shown->text.data()), answer.shown->text.size()});
    for (Buffer& piece : answer.pieces) pieces.push_back({piece.data(), piece.size()});
  }
  auto writing = write(connection, pieces);
  co_return co_await writing;
}

// Closing with unread bytes would discard the answer on its way to the client: they are read and dropped for a
// moment.
Task<void> AdminServer::linger(Connection& connection) {
  const TimePoint until = Clock::now() + linger_patience;
  std::size_t dropped = 0;
  while (dropped < linger_bytes_max && !stopping_) {
    const IoResult got = connection.transport->try_read(
        {reinterpret_cast<std::uint8_t*>(connection.input.data()), connection.input.size()});
    if (got.ok()) {
      dropped += got.bytes;
      continue;
    }
    if (!got.would_block()) co_return;
    connection.idle = true;
    ReadyWait readable(*connection.transport, Transport::Direction::read, until);
    const bool ready = co_await readable;
    connection.idle = false;
    if (!ready) co_return;
  }
}

Task<bool> AdminServer::hear_end(Connection& connection, TimePoint until) {
  const IoResult got = connection.transport->try_read(
      {reinterpret_cast<std::uint8_t*>(connection.input.data()), connection.input.size()});
  if (!got.would_block() || stopping_) co_return true;  // there is nothing to say in a stream
  ReadyWait readable(*connection.transport, Transport::Direction::read, until);
  static_cast<void>(co_await readable);
  co_return stopping_ || !readable.timed_out();
}

Task<void> AdminServer::stream(Connection& connection, bool head_only, bool details) {
  const Counted counted(streams_);
  const std::string head = http_head({.content_type = "text/event-stream",
                                      .content_bytes = std::nullopt,
                                      .keep_alive = false,
                                      .wall_ms = wall_clock_ms()});
  iovec begin{const_cast<char*>(head.data()), head.size()};
  bool goes_on = co_await write(connection, {&begin, 1});
  while (goes_on && !head_only) {
    const TimePoint next = Clock::now() + stream_pause;
    const auto shown = co_await live(details);
    if (shown) {  // else there is no memory for it this time
      std::array<iovec, 3> pieces{};
      std::size_t count = 0;
      for (const std::string_view piece : {event_begin, std::string_view(shown->text), event_end}) {
        pieces[count++] = {const_cast<char*>(piece.data()), piece.size()};
      }
      auto writing = write(connection, pieces);
      goes_on = co_await writing;
    }
    if (!goes_on) co_return;
    const bool ended = co_await hear_end(connection, next);
    goes_on = !ended;
  }
}

// --- pages

Task<AdminServer::Answer> AdminServer::act(Connection& connection) {
  const std::vector<exec::Context*> workers = live_contexts();
  const Transport& client = *connection.transport;
  auto acting = actions_.answer(connection.reader.request(), {client.peer(), client.local()},
                                workers.empty() ? nullptr : workers.front());
  AdminActions::Answer answered = co_await acting;
  co_return Answer{.status = answered.status,
                   .content_type = "application/json",
                   .text = std::move(answered.json),
                   .more = std::move(answered.head)};
}

Task<AdminServer::Answer> AdminServer::answer(Connection& connection, bool local) {
  const HttpRequest& request = connection.reader.request();
  const bool is_action = AdminActions::knows(request.path);
  if (is_action && request.post) {
    co_return co_await act(connection);
  }
  if (is_action) co_return Answer{.status = 405, .text = "only POST is answered here\n", .allow = "POST"};
  if (request.post) co_return Answer{.status = 405, .text = "only GET and HEAD are answered here\n"};
  if (request.path == "/metrics") {
    co_return co_await metrics();
  }
  if (request.path == "/healthz") {
    co_return co_await health();
  }
  if (request.path == "/readyz") {
    co_return co_await readiness();
  }
  if (request.path == "/live") {
    co_return co_await live_page(local);
  }
  if (request.path == "/") {
    co_return Answer{.content_type = "text/html; charset=utf-8", .fixed = admin_page, .rules = page_rules()};
  }
  // Four of them would keep the page's own out.
  if (request.path == "/events" && is_of_other_site(request)) {
    co_return Answer{.status = 403, .text = "events are for the page of this port\n"};
  }
  if (request.path == "/events") co_return Answer{.status = 503, .text = "four look already\n"};
  co_return Answer{.status = 404, .text = "there are /, /events, /metrics, /live, /healthz and /readyz\n"};
}

// Contexts that have ended do not answer any more.
std::vector<exec::Context*> AdminServer::live_contexts() const {
  std::vector<exec::Context*> contexts;
  for (Worker* worker : workers_) {
    if (!worker->done()) contexts.push_back(&worker->context());
  }
  return contexts;
}

Task<std::vector<exec::WorkerFacts>> AdminServer::ask(const std::vector<exec::Context*>& contexts) {
  return exec::ask_these_workers<exec::WorkerFacts>(loop_, contexts, nullptr, exec::look_at_worker, worker_patience);
}

Task<AdminServer::Answer> AdminServer::metrics() {
  const std::vector<exec::Context*> contexts = live_contexts();
  const std::vector<exec::WorkerFacts> answers = co_await ask(contexts);
  exec::MetricsText text(shared_.memory.admin);
  exec::StatusFacts facts = exec::make_status_facts(shared_, answers);
  facts.serves = serving_;
  exec::write_metrics(text, shared_, facts);
  if (!text.complete())
    co_return Answer{.status = 503, .text = "there is no memory for this page now\n"};
  co_return Answer{.content_type = metrics_type, .pieces = text.take()};
}

Task<std::shared_ptr<const AdminServer::Shown>> AdminServer::live(bool details) {
  Live& kept = live_[details];
  if (kept.last && (kept.making || Clock::now() - kept.made < live_pause)) co_return kept.last;
  kept.making = true;
  const std::vector<exec::Context*> contexts = live_contexts();
  auto asking = exec::ask_these_workers<exec::LiveFacts>(
      loop_, contexts, nullptr, [details](const exec::Context& context) { return look_at_live(context, details); },
      worker_patience);
  std::vector<exec::LiveFacts> answers = co_await asking;
  kept.making = false;
  std::size_t shards = 0;
  for (const exec::LiveFacts& worker : answers) shards = std::max(shards, worker.worker.shards.size());
  const std::uint64_t most = live_bytes(shards);
  auto memory = shared_.memory.admin.try_reserve(2 * most);  // as BSON and as text
  if (!memory) co_return nullptr;
  auto shown = std::make_shared<Shown>();
  shown->text = to_json(exec::live_status(shared_, std::move(answers), details).view(), most);
  if (shown->text.size() > most) co_return nullptr;  // it was cut
  memory->shrink_to(std::min<std::uint64_t>(shown->text.capacity(), memory->bytes()));
  shown->memory = *std::move(memory);
  kept.last = shown;
  kept.made = Clock::now();
  co_return shown;
}

Task<AdminServer::Answer> AdminServer::live_page(bool details) {
  auto shown = co_await live(details);
  if (!shown) co_return Answer{.status = 503, .text = "there is no memory for this page now\n"};
  co_return Answer{.content_type = "application/json", .shown = std::move(shown)};
}

// The names of loops that hang.
Task<std::vector<std::string>> AdminServer::silent_loops() {
  std::vector<std::pair<std::string, Loop*>> loops;
  if (!shared_.life.stopping) loops.emplace_back("the main loop", &main_loop_);
  for (exec::Context* context : live_contexts()) {
    loops.emplace_back(fmt::format("worker {}", context->worker), &context->loop);
  }
  auto signs = std::make_shared<SignsOfLife>();
  signs->given.resize(loops.size());
  signs->waiting = loops.size();
  for (std::size_t i = 0; i < loops.size(); ++i) {
    loops[i].second->post([signs, i, home = &loop_] {
      home->post([signs, i] {
        signs->given[i] = true;
        if (--signs->waiting == 0) signs->done.set();
      });
    });
  }
  std::vector<std::string> silent;
  if (loops.empty()) co_return silent;
  loop_.arm(*signs, Clock::now() + health_patience);
  co_await signs->done;
  loop_.disarm(*signs);
  for (std::size_t i = 0; i < loops.size(); ++i) {
    if (!signs->given[i]) silent.push_back(loops[i].first);
  }
  co_return silent;
}

Task<AdminServer::Answer> AdminServer::health() {
  const std::vector<std::string> silent = co_await silent_loops();
  if (silent.empty()) co_return Answer{.text = "alive\n"};
  const auto patience = std::chrono::duration_cast<std::chrono::seconds>(health_patience).count();
  co_return Answer{
      .status = 503,
      .text = fmt::format("no sign of life within {} s: {}\n", patience, fmt::join(silent, ", "))};
}

Task<AdminServer::Answer> AdminServer::readiness() {
  const auto unready = [](std::string why) {
    return Answer{.status = 503, .text = std::move(why)};
  };
  if (shared_.life.quiescing || shared_.life.stopping) co_return unready("shutting down\n");
  if (!serving_) {
    const MutexLock lock(waits_mutex_);
    co_return unready(waits_for_.empty() ? "starting\n" : fmt::format("starting: {}\n", waits_for_));
  }
  const std::vector<exec::Context*> contexts = live_contexts();
  const std::vector<exec::WorkerFacts> answers = co_await ask(contexts);
  if (answers.size() < contexts.size()) {
    co_return unready(fmt::format("{} of {} workers do not answer\n",
                                  contexts.size() - answers.size(), contexts.size()));
  }
  const exec::StatusFacts facts = exec::make_status_facts(shared_, answers);
  std::vector<std::string_view> missing;
  std::size_t shards = 0;
  for (const exec::ShardFacts& shard : facts.shards) {
    // The config servers hold no data; as a shard, too, they come again.
    const bool config_servers = shared_.cluster && &shard == &facts.shards.front();
    if (config_servers && facts.shards.size() > 1) continue;
    ++shards;
    if (!shard.reachable) missing.push_back(shard.name);
  }
  if (missing.empty()) co_return Answer{.text = "ready\n"};
  const std::string names = fmt::format("shards that cannot be reached: {}; `spillway doctor` with the same options "
                                        "says why\n",
                                        fmt::join(missing, ", "));
  // Any shard is enough: otherwise one dead shard would take every router out of service.
  if (missing.size() < shards) co_return Answer{.text = "ready\n" + names};
  co_return unready(names);
}

}  // namespace spillway::server
