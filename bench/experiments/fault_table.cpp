// fault_table: reads of resident documents beside writes that fault, on one file-backed table under
// one of three lock disciplines. Faults are the kernel's: the written page was dropped from the
// mapping and from the page cache before, so that it comes from the disk, and is counted (majflt).
//
//   held     a write holds the table's lock while its page comes from the disk
//   yielded  a write that finds its page missing gives the lock up, has the page come, and tries
//   again apart    a write has its page come before it takes any lock, and then locks its stripe
//   alone
//
// --make PATH --table-mib N writes the file; otherwise one run, and one JSON object. Run it in a
// memory cgroup smaller than the table (bench/faults does).
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "bench/experiments/small_tools.h"

namespace {

using spillway::bench::next_random;
using Clock = std::chrono::steady_clock;

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t document_bytes = 112;  // as published
constexpr std::size_t documents_per_page = page_bytes / document_bytes;
constexpr std::size_t stripes = 64;
constexpr std::size_t mib = std::size_t{1} << 20;

enum class Discipline { held, yielded, apart };

struct Options {
  std::string path;
  std::size_t table_mib = 512;
  std::size_t hot_mib = 16;  // what is read
  Discipline discipline = Discipline::held;
  bool faulting = true;
  double writes_per_s = 0;  // of all writers
  int readers = 2;
  int writers = 4;
  double seconds = 1;
};

// Writers come first: without that, readers that overlap would keep them out for ever.
class RwLock {
 public:
  RwLock() {
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&lock_, &attributes);
    pthread_rwlockattr_destroy(&attributes);
  }
  ~RwLock() { pthread_rwlock_destroy(&lock_); }
  RwLock(const RwLock&) = delete;
  RwLock& operator=(const RwLock&) = delete;
  void lock() { pthread_rwlock_wrlock(&lock_); }
  void lock_shared() { pthread_rwlock_rdlock(&lock_); }
  void unlock() { pthread_rwlock_unlock(&lock_); }

 private:
  pthread_rwlock_t lock_;
};

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "fault_table: %s: %s\n", what, std::strerror(errno));
  std::exit(2);
}

std::uint64_t major_faults() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return static_cast<std::uint64_t>(used.ru_majflt);
}

// The file and its mapping; the first pages are kept in memory, the others are not.
class Table {
 public:
  explicit Table(const Options& options)
      : hot_pages_(options.hot_mib * mib / page_bytes),
        bytes_(options.table_mib * mib),
        fd_(open(options.path.c_str(), O_RDWR | O_CLOEXEC)) {
    struct stat about {};
    if (fd_ < 0 || fstat(fd_, &about) != 0) give_up(options.path.c_str());
    if (static_cast<std::size_t>(about.st_size) < bytes_) {
      std::fprintf(stderr, "fault_table: %s is smaller than --table-mib\n", options.path.c_str());
      std::exit(2);
    }
    void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (mapped == MAP_FAILED) give_up("mmap");
    data_ = static_cast<char*>(mapped);
    // No reading around a fault: one fault is one page.
    if (madvise(data_, bytes_, MADV_RANDOM) != 0) give_up("madvise");
    fsync(fd_);
    posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    if (mlock(data_, hot_pages_ * page_bytes) != 0) give_up("mlock");
  }
  ~Table() {
    munmap(data_, bytes_);
    close(fd_);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  std::size_t hot_pages() const { return hot_pages_; }
  std::size_t cold_pages() const { return bytes_ / page_bytes - hot_pages_; }
  char* page(std::size_t number) const { return data_ + number * page_bytes; }

  void evict(std::size_t number) const {
    if (madvise(page(number), page_bytes, MADV_DONTNEED) != 0) give_up("madvise");
    posix_fadvise(fd_, static_cast<off_t>(number * page_bytes), page_bytes, POSIX_FADV_DONTNEED);
  }
  bool resident(std::size_t number) const {
    unsigned char there = 0;
    if (mincore(page(number), page_bytes, &there) != 0) give_up("mincore");
    return (there & 1) != 0;
  }

 private:
  std::size_t hot_pages_;
  std::size_t bytes_;
  int fd_;
  char* data_ = nullptr;
};

struct alignas(64) Count {
  std::uint64_t operations = 0;
  std::uint64_t major_faults = 0;
  double busy_s = 0;  // writers: from asking for the lock to letting it go
};

class Run {
 public:
  explicit Run(const Options& options) : options_(options), table_(options) {}

  void run() {
    std::vector<Count> reads(static_cast<std::size_t>(options_.readers));
    std::vector<Count> writes(static_cast<std::size_t>(options_.writers));
    const auto start = Clock::now();
    {
      std::vector<std::jthread> threads;
      for (std::size_t at = 0; at < reads.size(); ++at) {
        threads.emplace_back([&, at] { read_all(reads[at], at); });
      }
      for (std::size_t at = 0; options_.writes_per_s > 0 && at < writes.size(); ++at) {
        threads.emplace_back([&, at] { write_all(writes[at], at, start); });
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds));
      stop_ = true;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    Count all_reads, all_writes;
    for (const auto& [from, to] :
         {std::pair{&reads, &all_reads}, std::pair{&writes, &all_writes}}) {
      for (const Count& count : *from) {
        to->operations += count.operations;
        to->major_faults += count.major_faults;
        to->busy_s += count.busy_s;
      }
    }
    std::printf(
        "{\"seconds\": %.4f, \"reads_per_s\": %.1f, \"writes_per_s\": %.2f, \"write_majflt\": "
        "%llu, "
        "\"read_majflt\": %llu, \"writes\": %llu, \"write_us\": %.1f, \"checksum\": %llu}\n",
        seconds, static_cast<double>(all_reads.operations) / seconds,
        static_cast<double>(all_writes.operations) / seconds,
        static_cast<unsigned long long>(all_writes.major_faults),
        static_cast<unsigned long long>(all_reads.major_faults),
        static_cast<unsigned long long>(all_writes.operations),
        all_writes.operations == 0
            ? 0.0
            : all_writes.busy_s * 1e6 / static_cast<double>(all_writes.operations),
        static_cast<unsigned long long>(checksum_.load()));
  }

 private:
  RwLock& lock_of(std::size_t page) {
    return options_.discipline == Discipline::apart ? locks_[page % stripes] : locks_[0];
  }

  void read_all(Count& mine, std::size_t number) {
    Count count;
    std::uint64_t random = 0x9e3779b97f4a7c15ULL * (number + 1), sum = 0;
    const std::uint64_t before = major_faults();
    while (!stop_.load(std::memory_order_relaxed)) {
      const std::size_t page = next_random(random) % table_.hot_pages();
      const char* at =
          table_.page(page) + next_random(random) % documents_per_page * document_bytes;
      RwLock& lock = lock_of(page);
      lock.lock_shared();
      for (std::size_t word = 0; word < document_bytes; word += sizeof(std::uint64_t)) {
        std::uint64_t value = 0;
        std::memcpy(&value, at + word, sizeof value);
        sum += value;
      }
      lock.unlock();
      ++count.operations;
    }
    count.major_faults = major_faults() - before;
    checksum_ += sum;
    mine = count;
  }

  void write_all(Count& mine, std::size_t number, Clock::time_point start) {
    Count count;
    const auto writers = static_cast<std::size_t>(options_.writers);
    const double interval_s = static_cast<double>(writers) / options_.writes_per_s;
    const double offset_s = interval_s * static_cast<double>(number) / static_cast<double>(writers);
    const std::uint64_t before = major_faults();
    // Each page is written once in a run: a written one could not be dropped again at once.
    const std::size_t pages = options_.faulting ? table_.cold_pages() : table_.hot_pages();
    for (std::size_t k = 0; !stop_; ++k) {
      const auto due =
          start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                      offset_s + interval_s * static_cast<double>(k)));
      while (Clock::now() < due && !stop_) {
        std::this_thread::sleep_until(std::min(due, Clock::now() + std::chrono::milliseconds(20)));
      }
      if (stop_) break;
      const std::size_t turn = k * writers + number;
      // A step that shares no factor with the number of pages goes to all of them.
      const std::size_t page = turn * 7919 % pages + (options_.faulting ? table_.hot_pages() : 0);
      if (options_.faulting) table_.evict(page);
      const auto began = Clock::now();
      write(page);
      count.busy_s += std::chrono::duration<double>(Clock::now() - began).count();
      ++count.operations;
    }
    count.major_faults = major_faults() - before;
    mine = count;
  }

  void write(std::size_t page) {
    volatile char* at = table_.page(page);
    RwLock& lock = lock_of(page);
    if (options_.discipline == Discipline::apart) {
      touch(at);
      lock.lock();
    } else {
      lock.lock();
      while (options_.discipline == Discipline::yielded && !table_.resident(page)) {
        lock.unlock();
        touch(at);
        lock.lock();
      }
    }
    for (std::size_t word = 0; word < document_bytes; ++word) at[word] = static_cast<char>(word);
    lock.unlock();
  }

  // Reads the page, then writes what was there: a first write to a page may wait, too.
  static void touch(volatile char* at) { at[page_bytes - 1] = at[page_bytes - 1]; }

  const Options options_;
  Table table_;
  std::array<RwLock, stripes> locks_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> checksum_{0};
};

int make(const std::string& path, std::size_t table_mib) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) give_up(path.c_str());
  std::vector<char> block(mib);
  std::uint64_t random = 88172645463325252ULL;
  for (std::size_t written = 0; written < table_mib; ++written) {
    for (std::size_t at = 0; at + 8 <= block.size(); at += 8) {
      const std::uint64_t value = next_random(random);
      std::memcpy(block.data() + at, &value, sizeof value);
    }
    if (write(fd, block.data(), block.size()) != static_cast<ssize_t>(block.size())) {
      give_up("write");
    }
  }
  if (fsync(fd) != 0) give_up("fsync");
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bool make_file = false, control = false;
  CLI::App app("Reads beside faulting writes.");
  app.add_option("path", options.path)->required();
  app.add_flag("--make", make_file, "write the file, and end");
  app.add_flag("--control", control, "writes go to pages that are in memory");
  app.add_option("--table-mib", options.table_mib)->check(CLI::Range(2, 1 << 20));
  app.add_option("--hot-mib", options.hot_mib)->check(CLI::Range(1, 1 << 19));
  app.add_option("--discipline", options.discipline)
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, Discipline>{{"held", Discipline::held},
                                            {"yielded", Discipline::yielded},
                                            {"apart", Discipline::apart}}));
  app.add_option("--writes-per-s", options.writes_per_s)->check(CLI::Range(0.0, 1e6));
  app.add_option("--readers", options.readers)->check(CLI::Range(1, 64));
  app.add_option("--writers", options.writers)->check(CLI::Range(1, 64));
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.05, 3600.0));
  CLI11_PARSE(app, argc, argv);
  if (options.hot_mib >= options.table_mib) {
    std::fprintf(stderr, "fault_table: --hot-mib must be less than --table-mib\n");
    return 2;
  }
  if (make_file) return make(options.path, options.table_mib);
  options.faulting = !control;
  Run(options).run();
  return 0;
}
