#include "proxy/server/life/handover.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "allocator/release.h"
#include "cursor/registry.h"
#include "proxy/base/log.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/process_facts.h"
#include "proxy/exec/tables/transaction_table.h"

namespace spillway::server {

namespace {

// From its start to the word that it is ready. systemd's own limit for a start is 90 s.
constexpr auto ready_max = std::chrono::seconds(60);
constexpr auto close_others_interval = std::chrono::milliseconds(500);
constexpr auto tell_held_interval = std::chrono::milliseconds(500);
// What a process may use beyond what it holds, however much the other one has.
constexpr std::uint64_t least_beside_bytes = 8 * limits::mib;
constexpr int channel_descriptor = 3;

// These are for the process that they name, or for its sockets, which it gives away itself.
constexpr std::array<std::string_view, 5> own_variables = {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID",
                                                           handover_variable};

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_of_new() {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable = *at;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (std::find(own_variables.begin(), own_variables.end(), name) == own_variables.end()) {
      variables.emplace_back(variable);
    }
  }
  variables.push_back(fmt::format("{}={}", handover_variable, channel_descriptor));
  return variables;
}

// No signal comes while it lives. A child would run this process's handlers, which tell its loop by a pipe of both.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

// Those that are ignored stay so, as a program that is executed has them. Then none is blocked.
void use_default_signals() noexcept {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// In the new process, after a fork of one with threads: nothing here may take a lock or memory.
[[noreturn]] void become(const char* path, char* const* arguments, char* const* variables, int channel) {
  use_default_signals();
  if (channel == channel_descriptor) {
    ::fcntl(channel, F_SETFD, 0);
  } else {
    ::dup2(channel, channel_descriptor);
  }
  // Asio's own sockets are inherited otherwise.
  if (::close_range(channel_descriptor + 1, ~0U, 0) != 0) {
    for (int other = channel_descriptor + 1; other < 65'536; ++other) ::close(other);
  }
  ::execve(path, arguments, variables);
  ::_exit(127);
}

// A signal, such as another SIGUSR2, may come at any time.
template <class Call>
ssize_t uninterrupted(const Call& call) {
  ssize_t result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Returns the new process's id. It is no child of ours: a service manager that adopts orphans watches it from the
// beginning. Throws std::runtime_error.
::pid_t launch(const std::string& path, std::vector<std::string> arguments, int channel) {
  std::vector<std::string> variables = environment_of_new();
  const std::vector<char*> argument_list = pointers_to(arguments), variable_list = pointers_to(variables);
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const FileDescriptor from(pipe[0]);
  FileDescriptor to(pipe[1]);
  std::optional<BlockedSignals> blocked(std::in_place);
  const ::pid_t between = ::_Fork();
  if (between == 0) {
    const ::pid_t started = ::_Fork();
    if (started == 0) become(path.c_str(), argument_list.data(), variable_list.data(), channel);
    const bool told = started > 0 && ::write(pipe[1], &started, sizeof started) == sizeof started;
    ::_exit(told ? 0 : 1);
  }
  const int failure = errno;
  blocked.reset();
  const std::string why = between < 0 ? std::generic_category().message(failure) : "it could not be forked";
  to.reset();
  ::pid_t started = 0;
  const bool told = between > 0 && uninterrupted([&] { return ::read(from.get(), &started, sizeof started); }) ==
                                       static_cast<ssize_t>(sizeof started);
  if (between > 0) uninterrupted([&] { return ssize_t{::waitpid(between, nullptr, 0)}; });
  if (!told) throw std::runtime_error(fmt::format("no new process: {}", why));
  return started;
}

std::vector<std::int64_t> identity_of(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {static_cast<std::int64_t>(found.st_dev), static_cast<std::int64_t>(found.st_ino), found.st_size,
          found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
}

// A container ends with it. In a process namespace that containers share its parent is outside.
bool is_first_process() noexcept { return ::getpid() == 1 || ::getppid() == 0; }

}  // namespace

Program::Program(const std::string& name) {
  std::error_code ignored;
  path_ = name.find('/') == std::string::npos ? std::filesystem::read_symlink("/proc/self/exe", ignored).string()
                                              : std::filesystem::absolute(name, ignored).string();
  identity_ = identity_of(path_);
}

bool Program::replaced() const {
  const std::vector<std::int64_t> now = identity_of(path_);
  return !now.empty() && now != identity_;
}

std::uint64_t limit_beside(std::uint64_t limit_bytes, std::uint64_t held_bytes, const BudgetUsage& now) noexcept {
  const std::uint64_t rest = limit_bytes - std::min(limit_bytes, held_bytes);
  const std::uint64_t kept = std::min(now.limit_bytes, now.used_bytes + least_beside_bytes);
  return std::min(limit_bytes, std::max({rest, kept, least_beside_bytes}));
}

void share_memory(MemoryBudget& own, std::uint64_t limit_bytes, std::uint64_t held_bytes) noexcept {
  if (limit_bytes != 0) own.set_limit(limit_beside(limit_bytes, held_bytes, own.usage()));
}

Handover::Handover(Loop& loop, const exec::Services& shared, std::vector<Worker*> workers, Listener& listener,
                   Shutdown& shutdown, Options options)
    : loop_(loop),
      shared_(shared),
      workers_(std::move(workers)),
      listener_(listener),
      shutdown_(shutdown),
      options_(std::move(options)) {}

Handover::~Handover() { loop_.disarm(*this); }

bool Handover::is_due() const {
  return state_ == State::starting || (state_ == State::none && !is_first_process() && options_.program.replaced());
}

bool Handover::request(bool reloads) {
  std::string why;
  if (is_first_process()) why = "the container would end with it";
  if (state_ == State::moving) why = "it has been replaced";
  if (stopped_ || shutdown_.begun()) why = "it ends";
  if (!why.empty()) {
    log::warning("the process is not replaced: {}", why);
    return false;
  }
  reloads_ = reloads_ || reloads;
  asked_ = state_ == State::starting || options_.must_wait();
  if (asked_) {
    const std::string_view when =
        waits() ? "when the one before it has ended, which still holds cursors, transactions or requests"
                : "once more, after it has been";
    log::info("the process is to be replaced {}", when);
    if (waits()) options_.goes_on(fmt::format("To be replaced {}", when));
    return true;
  }
  log::info("the process is to be replaced by {}", options_.program.path());
  try {
    options_.began();
    begin();
  } catch (const std::runtime_error& error) {
    fail(error.what());
  }
  return true;
}

void Handover::retry() {
  if (std::exchange(asked_, false) && !stopped_ && !shutdown_.begun()) request();
}

void Handover::begin() {
  const std::string& path = options_.program.path();
  if (::access(path.c_str(), X_OK) != 0) {
    throw std::runtime_error(fmt::format("{}: {}", path, std::generic_category().message(errno)));
  }
  auto [ours, theirs] = HandoverChannel::make_pair();
  channel_ = std::make_unique<HandoverChannel>(loop_, std::move(ours));
  memory_limit_bytes_ = shared_.memory.process.usage().limit_bytes;
  share_memory(shared_.memory.process, memory_limit_bytes_, shared_.facts.base_bytes);
  state_ = State::starting;
  channel_->send(OfferedSockets::offer(options_.offer()));
  started_ = launch(path, options_.arguments, theirs.get());
  started_process_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, started_, 0)));
  theirs.reset();
  loop_.arm(*this, Clock::now() + ready_max);
  channel_->start([this](HandoverChannel::Message message) { heard(std::move(message)); },
                  [this](const std::string& why) {
                    if (state_ == State::starting) return fail(why + " (its own log lines say why)");
                    log::error("the process {} that has replaced this one: {}", started_, why);
                    shutdown_.begin(Duration());
                  });
}

void Handover::heard(HandoverChannel::Message message) {
  if (message.kind == "ready" && state_ == State::starting) {
    move();
  } else if (message.kind == "relay" && state_ == State::moving && message.descriptors.size() == 1) {
    listener_.let_in(MovedClient{std::move(message.body), std::move(message.descriptors.front()), {}, true});
  } else {
    log::warning("the process {} says \"{}\", which means nothing now", started_, message.kind);
  }
}

void Handover::on_timer() {
  fail(fmt::format("it was not ready after {} s", std::chrono::duration_cast<std::chrono::seconds>(ready_max).count()));
}

// All stays as it was.
void Handover::give_up() {
  loop_.disarm(*this);
  if (state_ == State::starting) shared_.memory.process.set_limit(memory_limit_bytes_);
  // It must not take the channel's end for ours, and serve beside us.
  if (started_process_) ::syscall(SYS_pidfd_send_signal, started_process_.get(), SIGKILL, nullptr, 0);
  started_process_.reset();
  state_ = State::none;
  if (channel_) channel_->close();
}

void Handover::fail(const std::string& why) {
  give_up();
  log::error("the process is not replaced, and goes on: {}", why);
  options_.goes_on(fmt::format("Not replaced: {}", why));
  loop_.post([this] {
    if (state_ != State::none) return;  // that attempt will tell
    // Certificates would never be renewed while what is installed does not work, however often a reload is asked for.
    if (std::exchange(reloads_, false) && !stopped_) {
      asked_ = false;
      return options_.reload();
    }
    if (asked_) retry();
  });
}

void Handover::stop() {
  stopped_ = true;
  if (state_ == State::starting) give_up();
}

void Handover::tell_held() {
  share_memory(shared_.memory.process, memory_limit_bytes_, memory_limit_bytes_);
  BsonWriter body;
  body.append("bytes", static_cast<std::int64_t>(process_resident_bytes()));
  channel_->send(HandoverChannel::message("held", std::move(body).finish()));
}

void Handover::move() {
  loop_.disarm(*this);
  state_ = State::moving;
  log::info("the process {} has replaced this one, which ends when its cursors, transactions and requests have ended, "
            "or after {} ms (cursorTimeoutMillis)",
            started_, shared_.parameters.cursor_timeout_ms.load());
  options_.replaced(started_);
  listener_.stop();
  tell_held();
  BsonWriter body;
  body.append("nextConnection", listener_.next_connection_id()).append("again", asked_);
  channel_->send(HandoverChannel::message("serve", std::move(body).finish()));
  shared_.life.replaced = true;
  for (Worker* worker : workers_) {
    worker->let_leave([this](MovedClient client) {
      passing_.fetch_add(1);
      auto message = std::make_shared<HandoverChannel::Message>(HandoverChannel::message("client", client.state));
      message->descriptors.push_back(std::move(client.socket));
      message->room = std::move(client.room);
      loop_.post([this, message] {
        channel_->send(std::move(*message));
        passing_.fetch_sub(1);
      });
    });
  }
  loop_.spawn(stay());
}

Duration Handover::announced_for() const {
  return std::chrono::milliseconds(shared_.parameters.shutdown_timeout_ms.load());
}

// What cannot move learns by hello that this process ends. No worker may take another client for one of those.
Task<void> Handover::tell_others() {
  auto untold = std::make_shared<std::atomic<std::size_t>>(workers_.size());
  for (Worker* worker : workers_) {
    worker->loop().post([untold] { untold->fetch_sub(1); });
  }
  while (*untold > 0) co_await loop_.sleep_for(look_interval);
  shared_.life.quiesce_end_ns = (Clock::now() + announced_for()).time_since_epoch().count();
  shared_.life.quiescing = true;
  shared_.life.topology_counter = 1;
  for (Worker* worker : workers_) worker->wake_hellos();
}

Task<void> Handover::stay() {
  const TimePoint begun = Clock::now();
  TimePoint next_told = begun + tell_held_interval;
  TimePoint next_closed = begun + announced_for();
  std::int64_t connections = 0;
  co_await tell_others();
  for (;;) {
    co_await loop_.sleep_for(look_interval);
    if (shutdown_.begun()) co_return;
    const TimePoint now = Clock::now();
    if (now >= next_told) {
      tell_held();
      next_told = now + tell_held_interval;
    }
    if (now >= next_closed) {
      for (Worker* worker : workers_) worker->close_others(announced_for());
      next_closed = now + close_others_interval;
    }
    // Looked at first: the request that ends the last of them is under way until its client has the answer. All cursors
    // are counted for it, so not while there are clients.
    const bool nothing_open =
        connections == 0 && shared_.cursors.counts().open_total == 0 && shared_.transactions->active() == 0;
    connections = 0;
    for (const Worker* worker : workers_) connections += worker->own_connections();
    if (connections == 0 && nothing_open && passing_ == 0 && channel_->all_sent()) {
      break;
    }
    if (now < begun + std::chrono::milliseconds(shared_.parameters.cursor_timeout_ms.load())) continue;
    log::warning("{} connections, {} cursors and {} transactions have not ended in time", connections,
                 shared_.cursors.counts().open_total, shared_.transactions->active());
    break;
  }
  shutdown_.begin(Duration());
}

}  // namespace spillway::server
