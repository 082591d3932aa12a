#include "allocator/release.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdio>
#include <utility>

#include "allocator/buffer_heaps.h"
#include "allocator/heaps.h"
#include "allocator/retention.h"

namespace spillway {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, release_reasons> reason_names = {
    "exhaustion", "decay", "expiry", "kill", "orphan", "pressure", "command", "switched"};

// Requested by a waiting caller, or by the lack of memory.
constexpr ReleaseReasons urgent_reasons =
    reason_bit(ReleaseReason::pressure) | reason_bit(ReleaseReason::command);

// A worker in the middle of a large reply answers within this; one that does not is left out.
constexpr std::chrono::milliseconds flush_wait_max{100};

// How often a request that must wait for the rate limit is checked.
constexpr std::chrono::milliseconds rate_limit_look{50};

std::uint64_t micros_since(Clock::time_point start) noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
}

std::uint64_t thread_cpu_us() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec) / 1'000;
}

std::uint64_t given_back_by_all() noexcept {
  std::uint64_t bytes = 0;
  for (const Heap* heap : linked_heaps()) bytes += heap->usage().given_back_bytes;
  return bytes;
}

}  // namespace

std::string_view release_reason_name(ReleaseReason reason) noexcept {
  return reason_names[static_cast<std::size_t>(reason)];
}

void SliceHistogram::add(std::uint64_t us, std::uint64_t cpu_us) noexcept {
  const auto bucket = std::upper_bound(bounds_us.begin(), bounds_us.end(), us) - bounds_us.begin();
  ++counts[static_cast<std::size_t>(bucket)];
  longest_us = std::max(longest_us, us);
  longest_cpu_us = std::max(longest_cpu_us, cpu_us);
}

void SliceHistogram::add(const SliceHistogram& other) noexcept {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  longest_us = std::max(longest_us, other.longest_us);
  longest_cpu_us = std::max(longest_cpu_us, other.longest_cpu_us);
}

void ReleaseSchedule::request(ReleaseReason reason) noexcept { pending_ |= reason_bit(reason); }

ReleaseReasons ReleaseSchedule::step(std::int64_t now_ns, const Counters& counters) noexcept {
  // Less than this between two looks is not a load that needs the pages again.
  if (counters.taken_bytes - taken_seen_ >= settings_.threshold_bytes) {
    taken_seen_ = counters.taken_bytes;
    busy_until_ns_ = now_ns + settings_.quiet_ns;
  }
  const bool much = counters.freed_bytes - freed_at_release_ >= settings_.threshold_bytes;
  const std::int64_t since_last = last_end_ns_ ? now_ns - *last_end_ns_ : settings_.decay_ns;
  if (much && now_ns >= busy_until_ns_) request(ReleaseReason::exhaustion);
  if (much && counters.decays && since_last >= settings_.decay_ns) request(ReleaseReason::decay);
  // Cursors that ended held next to nothing here; their bookkeeping in plain malloc can wait.
  constexpr ReleaseReasons ends = reason_bit(ReleaseReason::expiry) |
                                  reason_bit(ReleaseReason::kill) |
                                  reason_bit(ReleaseReason::orphan);
  const bool hold_ends = !much && since_last < settings_.decay_ns;
  const ReleaseReasons ready = hold_ends ? static_cast<ReleaseReasons>(pending_ & ~ends) : pending_;
  const bool asked = (pending_ & urgent_reasons) != 0;
  if (ready == 0 || running_ || (!asked && last_end_ns_ && since_last < settings_.interval_ns)) {
    return 0;
  }
  running_ = true;
  freed_at_release_ = counters.freed_bytes;
  return std::exchange(pending_, ReleaseReasons{0});
}

void ReleaseSchedule::finished(std::int64_t now_ns) noexcept {
  running_ = false;
  last_end_ns_ = now_ns;
}

void CacheFlush::flush_here() noexcept {
  plain_malloc::flush_thread_cache();
  const std::lock_guard lock(mutex_);
  assert(left_ > 0);
  if (--left_ == 0) all_done_.notify_all();
}

bool CacheFlush::wait(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  return all_done_.wait_for(lock, at_most, [this] { return left_ == 0; });
}

// Measures slices, and rests between them so that a release does not occupy a core.
class Releaser::Pacer final : public SlicePacer {
 public:
  Pacer(const std::atomic<bool>& stopping, bool hurry) noexcept
      : stopping_(stopping), hurry_(hurry) {}

  void begin() noexcept override {
    start_ = Clock::now();
    cpu_start_us_ = thread_cpu_us();
  }
  void end(std::uint64_t) noexcept override {
    const std::uint64_t us = micros_since(start_);
    histogram.add(us, thread_cpu_us() - cpu_start_us_);
    worked_us_ += us;
    if (worked_us_ < work_us || hurry_ || rested_us_ >= rest_us_max || !more()) return;
    const std::uint64_t rest_us = std::min(rest_factor * worked_us_, rest_us_max - rested_us_);
    std::this_thread::sleep_for(std::chrono::microseconds(rest_us));
    rested_us_ += rest_us;
    worked_us_ = 0;
  }
  bool more() const noexcept override { return !stopping_.load(std::memory_order_relaxed); }

  SliceHistogram histogram;

 private:
  static constexpr std::uint64_t work_us = 500;
  static constexpr std::uint64_t rest_factor = 2;
  // The sum of all rests: a release of gigabytes must come to an end.
  static constexpr std::uint64_t rest_us_max = 400'000;

  const std::atomic<bool>& stopping_;
  const bool hurry_;
  Clock::time_point start_;
  std::uint64_t cpu_start_us_ = 0;
  std::uint64_t worked_us_ = 0;
  std::uint64_t rested_us_ = 0;
};

void Releaser::start(FlushCaches flush_caches) {
  assert(!thread_.joinable());
  flush_caches_ = std::move(flush_caches);
  stopping_ = false;
  thread_ = std::thread([this] { run(); });
  running_ = true;
  ::pthread_setname_np(thread_.native_handle(), "release");
}

void Releaser::stop() {
  if (!thread_.joinable()) return;
  running_ = false;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
  const ReleaseRecord none;
  for (const Done& done : std::exchange(waiting_, {})) done(none);
}

void Releaser::step_locked(std::int64_t now) {
  due_ |= schedule_.step(now, heap_counters());
  if (due_ != 0) wake_.notify_all();
}

void Releaser::tick(std::int64_t now) {
  if (!running()) return;
  const std::lock_guard lock(mutex_);
  step_locked(now);
}

void Releaser::request(ReleaseReason reason) {
  if (!running()) return;
  const std::lock_guard lock(mutex_);
  schedule_.request(reason);
  step_locked(steady_now_ns());
  if (schedule_.waiting()) wake_.notify_all();
}

void Releaser::request(ReleaseReason reason, Done done) {
  if (!running()) return;
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(done));
  schedule_.request(reason);
  step_locked(steady_now_ns());
  if (schedule_.waiting()) wake_.notify_all();
}

void Releaser::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto wanted = [this] { return stopping_.load() || due_ != 0 || schedule_.waiting(); };
    wake_.wait(lock, wanted);
    if (stopping_.load()) return;
    if (due_ == 0) {
      // Too soon after the last release.
      wake_.wait_for(lock, rate_limit_look, [this] { return stopping_.load() || due_ != 0; });
      step_locked(steady_now_ns());
      continue;
    }
    const ReleaseReasons reasons = std::exchange(due_, ReleaseReasons{0});
    const std::vector<Done> answers = std::exchange(waiting_, {});
    lock.unlock();
    ReleaseRecord record = release(reasons);
    lock.lock();
    schedule_.finished(steady_now_ns());
    record.number = ++statistics_.releases;
    for (std::size_t i = 0; i < release_reasons; ++i)
      statistics_.by_reason[i] += (reasons >> i) & 1U;
    statistics_.given_back_bytes += record.given_back_bytes;
    statistics_.total_us += record.total_us;
    statistics_.slices.add(record.slices);
    if (statistics_.history.size() == history_max)
      statistics_.history.erase(statistics_.history.begin());
    statistics_.history.push_back(record);
    lock.unlock();
    for (const Done& done : answers) done(record);
    lock.lock();
    step_locked(steady_now_ns());
  }
}

ReleaseRecord Releaser::release(ReleaseReasons reasons) {
  ReleaseRecord record;
  record.reasons = reasons;
  record.started_ns = steady_now_ns();
  record.resident_before_bytes = process_resident_bytes();
  const std::uint64_t given_back = given_back_by_all();
  const auto start = Clock::now();
  if (flush_caches_) {
    if (const auto round = flush_caches_()) round->wait(flush_wait_max);
  }
  record.flush_us = micros_since(start);
  Pacer pacer(stopping_, (reasons & urgent_reasons) != 0);
  {
    const Retention::Pass pass;
    for (Heap* heap : linked_heaps()) heap->release(pacer);
  }
  plain_malloc::release(pacer);
  record.total_us = micros_since(start);
  record.slices = pacer.histogram;
  record.given_back_bytes = given_back_by_all() - given_back;
  record.resident_after_bytes = process_resident_bytes();
  return record;
}

void Releaser::set_settings(ReleaseSettings settings) {
  const std::lock_guard lock(mutex_);
  schedule_.set(settings);
}

std::uint64_t Releaser::threshold() const {
  const std::lock_guard lock(mutex_);
  return schedule_.settings().threshold_bytes;
}

ReleaserStatistics Releaser::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

std::int64_t steady_now_ns() noexcept {
  const auto now = Clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

ProcessBytes process_bytes() noexcept {
  // Kept open: it is read when the process has as many files as it may, too.
  static std::atomic<int> file = -1;
  if (file.load(std::memory_order_relaxed) < 0) {
    int none = -1;
    const int opened = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (opened >= 0 && !file.compare_exchange_strong(none, opened)) ::close(opened);
  }
  char text[64] = {};
  unsigned long long size_pages = 0, resident_pages = 0;
  const bool read = ::pread(file.load(std::memory_order_relaxed), text, sizeof text - 1, 0) > 0 &&
                    std::sscanf(text, "%llu %llu", &size_pages, &resident_pages) == 2;
  if (!read) return {};
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return {size_pages * page_bytes, resident_pages * page_bytes};
}

ReleaseSchedule::Counters heap_counters() noexcept {
  ReleaseSchedule::Counters counters;
  counters.decays = BufferHeaps::current().decays();
  for (const Heap* heap : linked_heaps()) {
    counters.freed_bytes += heap->freed_bytes();
    counters.taken_bytes += heap->taken_bytes();
  }
  return counters;
}

}  // namespace spillway
