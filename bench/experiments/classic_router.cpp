// classic_router: a model of how a classic router uses memory, without sockets. A thread for each
// scan; for each shard a queue of documents, each of which holds on to the whole reply that it came
// in, up to 16 MiB; when a queue is empty, the next reply is fetched whole; a client's batch is
// built in a buffer that doubles. Nothing is bounded, and nothing but malloc decides what goes
// back.
//
//   classic_router --scans 20 --kill-s 3 --timeout-s 12 --end-s 18    prints
//   ms,rss_bytes,get_mores,failed,phase classic_router --queries full|small --scans N --end-s 1 the
//   peak: rss_bytes,get_mores
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/experiments/small_tools.h"

namespace {

using spillway::bench::rss_bytes;
using Clock = std::chrono::steady_clock;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t batch_bytes_max = 16 * mib;  // a client's
constexpr std::size_t document_bytes = 1024;
constexpr std::size_t builder_bytes = 32 * 1024;  // where a client's batch begins
constexpr int small_query_documents = 20;

struct Options {
  int scans = 20;
  int shards = 6;
  double kill_s = 3;
  double timeout_s = 12;  // idle cursors end so long after the kill
  double end_s = 18;
  bool sweep = false;  // print the peak alone
  bool small = false;  // queries of 20 documents instead of scans
  bool mixed = false;  // replies of 100 KB to 4 MiB instead of 16 MiB
};

struct Free {
  void operator()(void* data) const { std::free(data); }
};
using Bytes = std::unique_ptr<char, Free>;

struct Document {
  std::shared_ptr<Bytes> reply;
  const char* data;
};

struct Counters {
  std::atomic<std::uint64_t> get_mores{0};
  std::atomic<std::uint64_t> failed{0};  // for want of memory
};

// What shards send; mapped, so that no heap counts it.
const char* shard_data() {
  static const char* const data = [] {
    void* mapped = mmap(nullptr, batch_bytes_max, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (mapped == MAP_FAILED) std::exit(1);
    std::memset(mapped, 'd', batch_bytes_max);
    return static_cast<const char*>(mapped);
  }();
  return data;
}

// One client's cursor over all shards.
class Scan {
 public:
  Scan(const Options& options, Counters& counters, int number)
      : options_(options),
        counters_(counters),
        queues_(static_cast<std::size_t>(options.shards)),
        random_(static_cast<std::uint64_t>(number) * 2654435761U + 88172645463325252ULL) {}

  // Has each shard without documents send the next reply.
  bool fetch() {
    try {
      for (auto& queue : queues_) {
        if (queue.empty() && !fetch_one(queue)) return false;
      }
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  // A batch for the client: copied together, sent, and let go.
  void get_more() {
    if (!fetch()) {
      ++counters_.failed;
      queues_.assign(queues_.size(), {});  // the query ends with an error
      return;
    }
    std::size_t room = builder_bytes, used = 0;
    Bytes out(static_cast<char*>(std::malloc(room)));
    const std::size_t wanted =
        options_.small ? small_query_documents * document_bytes : batch_bytes_max;
    for (std::size_t shard = 0; used + document_bytes <= wanted; ++shard) {
      auto& queue = queues_[shard % queues_.size()];
      if (queue.empty()) break;
      if (out && used + document_bytes > room) {
        char* larger = static_cast<char*>(std::realloc(out.get(), room *= 2));
        if (larger != nullptr) (void)out.release();
        out.reset(larger);
      }
      if (!out) break;
      std::memcpy(out.get() + used, queue.front().data, document_bytes);
      used += document_bytes;
      queue.pop_front();
    }
    if (!out) ++counters_.failed;
    if (options_.small) queues_.assign(queues_.size(), {});  // the limit was met: the cursor ends
    ++counters_.get_mores;
  }

 private:
  std::size_t reply_bytes() {
    if (options_.small) return small_query_documents * document_bytes;
    if (!options_.mixed) return batch_bytes_max;
    return 100 * 1000 + spillway::bench::next_random(random_) % (4 * mib - 100 * 1000);
  }

  bool fetch_one(std::deque<Document>& queue) {
    const std::size_t size = reply_bytes();
    Bytes bytes(static_cast<char*>(std::malloc(size)));
    if (!bytes) return false;
    std::memcpy(bytes.get(), shard_data(), size);
    const auto reply = std::make_shared<Bytes>(std::move(bytes));
    for (std::size_t at = 0; at + document_bytes <= size; at += document_bytes) {
      queue.push_back({reply, reply->get() + at});
    }
    return true;
  }

  const Options& options_;
  Counters& counters_;
  std::vector<std::deque<Document>> queues_;
  std::uint64_t random_;
};

class Router {
 public:
  explicit Router(const Options& options) : options_(options) {
    for (int number = 0; number < options.scans; ++number) {
      cursors_.push_back(std::make_unique<Scan>(options_, counters_, number));
    }
  }

  void run() {
    shard_data();
    start_ = Clock::now();
    for (auto& cursor : cursors_) {
      threads_.emplace_back([this, scan = cursor.get()] {
        while (!killed_) scan->get_more();
        scan->fetch();  // what shards were asked for still comes, and is kept
      });
    }
    if (options_.sweep) return sweep();
    sample_until(options_.kill_s, "scans");
    killed_ = true;
    sample_until(options_.kill_s + options_.timeout_s, "killed");
    threads_.clear();
    cursors_.clear();  // by the time-out, in one thread, as cursors are reaped
    sample_until(options_.end_s, "timed out");
  }

 private:
  void sample_until(double seconds, const char* phase) {
    do {
      const auto since =
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_);
      std::printf("%lld,%zu,%llu,%llu,%s\n", static_cast<long long>(since.count()), rss_bytes(),
                  static_cast<unsigned long long>(counters_.get_mores.load()),
                  static_cast<unsigned long long>(counters_.failed.load()), phase);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } while (Clock::now() < start_ + std::chrono::duration<double>(seconds));
  }

  void sweep() {
    std::size_t peak = 0;
    while (Clock::now() < start_ + std::chrono::duration<double>(options_.end_s)) {
      peak = std::max(peak, rss_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    killed_ = true;
    threads_.clear();
    peak = std::max(peak, rss_bytes());
    std::printf("%zu,%llu\n", peak, static_cast<unsigned long long>(counters_.get_mores.load()));
  }

  const Options options_;
  Counters counters_;
  std::vector<std::unique_ptr<Scan>> cursors_;
  std::atomic<bool> killed_{false};
  Clock::time_point start_;
  std::vector<std::jthread> threads_;
};

double number_of(const char* name, const char* text, double least, double most) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= least && value <= most)) {
    std::fprintf(stderr, "classic_router: %s must be from %g to %g\n", name, least, most);
    std::exit(2);
  }
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int at = 1; at + 1 < argc; at += 2) {
    const std::string_view name = argv[at];
    const char* text = argv[at + 1];
    if (name == "--scans") {
      options.scans = static_cast<int>(number_of(argv[at], text, 1, 10'000));
    } else if (name == "--shards") {
      options.shards = static_cast<int>(number_of(argv[at], text, 1, 100));
    } else if (name == "--kill-s") {
      options.kill_s = number_of(argv[at], text, 0.1, 1e5);
    } else if (name == "--timeout-s") {
      options.timeout_s = number_of(argv[at], text, 0.1, 1e5);
    } else if (name == "--end-s") {
      options.end_s = number_of(argv[at], text, 0.1, 1e5);
    } else if (name == "--replies") {
      options.mixed = std::string_view(text) == "mixed";
    } else if (name == "--queries") {
      options.sweep = true;
      options.small = std::string_view(text) == "small";
    } else {
      std::fprintf(stderr, "classic_router: no option %s\n", argv[at]);
      return 2;
    }
  }
  Router(options).run();
  return 0;
}
