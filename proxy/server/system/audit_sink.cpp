#include "proxy/server/system/audit_sink.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "proxy/base/file_descriptor.h"
#include "proxy/base/log.h"
#include "proxy/base/log_pace.h"
#include "proxy/exec/access/audit.h"

namespace spillway::server {

namespace {

constexpr ::mode_t owner_only = S_IRUSR | S_IWUSR;

std::string error_text() { return std::generic_category().message(errno); }

FileDescriptor open_file(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, owner_only));
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode))
    return file;  // a pipe's owner chooses its mode
  // A file that was there already may be readable for others.
  const bool private_now = (found.st_mode & ALLPERMS) == owner_only || ::fchmod(file.get(), owner_only) == 0;
  if (!private_now) log::warning("auditLog.path: its mode cannot be set: {}", error_text());
  return file;
}

}  // namespace

class AuditSink::Writer {
 public:
  Writer(const AuditConfig& config, std::size_t waiting_bytes_max);
  bool offer(std::string line);
  void reopen(bool rename);
  // True: all was written in time. False: the waiting lines are dropped, and nothing is logged any more.
  bool end(std::chrono::milliseconds wait_max);
  // The thread.
  void run();
  std::uint64_t failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

 private:
  enum class Reopen : std::uint8_t { no, plain, rename };
  struct Line {
    std::string text;
    std::uint64_t refused_before = 0;
  };
  void write_in_order(const Line& line);
  void tell_missing();
  bool write(const std::string& line);
  void open_anew(Reopen how);

  const AuditConfig config_;
  const std::size_t waiting_bytes_max_;
  FileDescriptor file_;
  bool mid_line_ = false;      // the last write was cut short
  std::uint64_t missing_ = 0;  // since the last line, and not told yet
  std::atomic<bool> left_behind_{false};  // the process may be at its end
  std::atomic<std::uint64_t> failed_{0};
  log::LogPace log_pace_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Line> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t refused_ = 0;  // since the last waiting line
  Reopen reopen_ = Reopen::no;
  bool stopped_ = false;
  bool ended_ = false;
};

AuditSink::AuditSink(const AuditConfig& config, const Bounds& bounds)
    : bounds_(bounds), writer_(std::make_shared<Writer>(config, bounds.waiting_bytes_max)) {
  thread_ = std::thread([writer = writer_] {
    log::name_thread("audit");
    writer->run();
  });
}

AuditSink::~AuditSink() { stop(); }

bool AuditSink::offer(std::string line) { return writer_->offer(std::move(line)); }

void AuditSink::reopen(bool rename) { writer_->reopen(rename); }

std::uint64_t AuditSink::failed() const noexcept { return writer_->failed(); }

void AuditSink::stop() {
  if (!thread_.joinable()) return;
  if (writer_->end(bounds_.stop_wait_max)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

AuditSink::Writer::Writer(const AuditConfig& config, std::size_t waiting_bytes_max)
    : config_(config), waiting_bytes_max_(waiting_bytes_max) {
  if (config_.destination == AuditDestination::file) {
    file_ = open_file(config_.path);
    if (!file_) throw std::runtime_error(fmt::format("auditLog.path: cannot open {}: {}", config_.path, error_text()));
  } else if (config_.destination == AuditDestination::console) {
    file_ = FileDescriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  }
}

bool AuditSink::Writer::offer(std::string line) {
  line += '\n';
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || waiting_bytes_ + line.size() > waiting_bytes_max_) {
      ++refused_;
      return false;
    }
    waiting_bytes_ += line.size();
    waiting_.push_back({std::move(line), std::exchange(refused_, 0)});
  }
  changed_.notify_one();
  return true;
}

void AuditSink::Writer::reopen(bool rename) {
  {
    const std::lock_guard lock(mutex_);
    reopen_ = rename ? Reopen::rename : Reopen::plain;
  }
  changed_.notify_one();
}

bool AuditSink::Writer::end(std::chrono::milliseconds wait_max) {
  std::unique_lock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
  if (changed_.wait_for(lock, wait_max, [this] { return ended_; })) return true;
  log::error("the audit log's disk is stuck: {} bytes that wait for it are lost", waiting_bytes_);
  left_behind_ = true;
  waiting_.clear();
  return false;
}

void AuditSink::Writer::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopped_ || !waiting_.empty() || reopen_ != Reopen::no; });
    if (waiting_.empty() && reopen_ == Reopen::no) break;
    // These lines were queued before the file changed.
    const std::deque<Line> taken = std::exchange(waiting_, {});
    const Reopen how = std::exchange(reopen_, Reopen::no);
    lock.unlock();
    for (const Line& line : taken) {
      if (left_behind_) break;
      write_in_order(line);
      const std::lock_guard counting(mutex_);
      waiting_bytes_ -= line.text.size();
    }
    if (how != Reopen::no && !left_behind_) open_anew(how);
    lock.lock();
  }
  missing_ += refused_;
  lock.unlock();
  if (!left_behind_) tell_missing();
  lock.lock();
  ended_ = true;
  changed_.notify_all();
}

void AuditSink::Writer::write_in_order(const Line& line) {
  missing_ += line.refused_before;
  tell_missing();
  if (missing_ == 0 && write(line.text)) return;
  ++missing_;
  failed_.fetch_add(1, std::memory_order_relaxed);
}

void AuditSink::Writer::tell_missing() {
  if (missing_ > 0 && write(exec::events_lost_line(missing_) + '\n')) missing_ = 0;
}

bool AuditSink::Writer::write(const std::string& line) {
  if (config_.destination == AuditDestination::syslog) {
    ::syslog(LOG_AUTHPRIV | LOG_INFO, "%.*s", static_cast<int>(line.size()) - 1, line.data());
    return true;
  }
  const std::string text = mid_line_ ? "\n" + line : line;
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(file_.get(), text.data() + done, text.size() - done);
    if (wrote > 0) {
      done += static_cast<std::size_t>(wrote);
      continue;
    }
    if (wrote < 0 && errno == EINTR) continue;
    if (left_behind_) return false;
    const std::string why = error_text();
    mid_line_ = mid_line_ ? done != 1 : done > 0;
    if (const auto unwritten = log_pace_.due(Clock::now())) {
      log::error("the audit log cannot be written: {}; a line is lost, and {} more since the last such line", why,
                 *unwritten);
    }
    return false;
  }
  mid_line_ = false;
  return true;
}

void AuditSink::Writer::open_anew(Reopen how) {
  if (config_.destination != AuditDestination::file) return;
  if (how == Reopen::rename) {
    const std::string old = fmt::format("{}.{:%Y-%m-%dT%H-%M-%S}", config_.path, fmt::gmtime(std::time(nullptr)));
    // An older file of the same second is not overwritten. A file that another program has renamed counts as renamed.
    const bool taken = ::access(old.c_str(), F_OK) == 0;
    if (taken || (::rename(config_.path.c_str(), old.c_str()) != 0 && errno != ENOENT)) {
      log::error("the audit log cannot be renamed to {}; it goes on as it was", old);
      return;
    }
  }
  FileDescriptor next = open_file(config_.path);
  if (!next) {
    log::error("the audit log cannot be opened anew: {}; it goes on in its old file", error_text());
    return;
  }
  file_ = std::move(next);
  mid_line_ = false;
}

}  // namespace spillway::server
