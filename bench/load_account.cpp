#include "bench/load_account.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <vector>

#include "bench/message.h"

namespace spillway::bench {
namespace {

constexpr auto sample_interval = std::chrono::milliseconds(200);
constexpr auto memory_goes_back = std::chrono::seconds(2);
constexpr std::size_t answer_bytes_max = 4 << 20;
constexpr double mib = 1 << 20;

int connect_to(const LoadOptions& options) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  if (inet_pton(AF_INET, options.host.c_str(), &address.sin_addr) != 1) return -1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

bool receive(int fd, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(fd, to, bytes, 0);
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

std::optional<ProxyAccount::Figures> ask(int fd) {
  const std::string body = DocWriter().add_int32("serverStatus", 1).add_text("$db", "admin").take();
  std::string message;
  append_op_msg_prefix(message, body.size(), 1, 0);
  message += body;
  if (send(fd, message.data(), message.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(message.size())) {
    return std::nullopt;
  }
  std::string answer(header_bytes, '\0');
  if (!receive(fd, answer.data(), header_bytes)) return std::nullopt;
  const MessageHeader header = load_header(answer.data());
  const auto bytes = static_cast<std::size_t>(std::max(header.bytes, 0));
  if (!header.plausible() || bytes > answer_bytes_max || bytes < op_msg_prefix_bytes) {
    return std::nullopt;
  }
  answer.resize(bytes);
  if (!receive(fd, answer.data() + header_bytes, bytes - header_bytes)) return std::nullopt;
  const auto request = read_request(answer);
  return request ? figures_of(request->body) : std::nullopt;
}

// The document found by going down `path`.
std::optional<std::string_view> document_at(std::string_view document,
                                            std::initializer_list<std::string_view> path) {
  for (const auto name : path) {
    const auto field = find_field(document, name);
    if (!field || !field->is_document()) return std::nullopt;
    document = field->value;
  }
  return document;
}

std::optional<std::int64_t> whole(std::string_view document, std::string_view name) {
  const auto field = find_field(document, name);
  return field ? field->integer() : std::nullopt;
}

struct Word {
  const char* key;
  const char* shown;
  bool bytes;
};
// In the order of the table.
constexpr std::array<Word, 6> words{{{"1 resident", "RSS", true},
                                     {"2 used", "budget in use", true},
                                     {"3 kept", "kept by heaps", true},
                                     {"4 parked", "parked or spilled", true},
                                     {"5 cursors", "open cursors", false},
                                     {"6 refusals", "charges refused", false}}};

}  // namespace

std::optional<ProxyAccount::Figures> figures_of(std::string_view server_status) {
  const auto memory = document_at(server_status, {"memory"});
  const auto process = document_at(server_status, {"memory", "budgets", "process"});
  const auto heaps = document_at(server_status, {"memory", "heaps"});
  if (!memory || !process || !heaps) return std::nullopt;
  ProxyAccount::Figures figures;
  const auto put = [&](const char* key, std::optional<std::string_view> from, const char* name) {
    figures[key] = from ? whole(*from, name).value_or(0) : 0;
  };
  put("1 resident", memory, "residentBytes");
  put("2 used", process, "usedBytes");
  put("4 parked", document_at(server_status, {"memory", "spill"}), "parkedBytes");
  put("5 cursors", document_at(server_status, {"metrics", "cursor", "open"}), "total");
  put("6 refusals", process, "refusals");
  put("limit", process, "limitBytes");
  put("peak", process, "peakBytes");
  FieldWalk walk(*heaps);
  while (const auto heap = walk.next()) {
    if (heap->is_document()) figures["3 kept"] += whole(heap->value, "keptBytes").value_or(0);
  }
  return figures;
}

ProxyAccount::ProxyAccount(const LoadOptions& options) : options_(options) {
  fd_ = connect_to(options);
  if (fd_ < 0) return;  // the load will say why
  if (auto figures = ask(fd_)) {
    before_ = most_ = *std::move(figures);
    known_ = true;
    thread_ = std::thread([this] { sample_until_stopped(); });
  }
}

ProxyAccount::~ProxyAccount() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  if (fd_ >= 0) close(fd_);
}

void ProxyAccount::sample_until_stopped() {
  while (!stop_) {
    std::this_thread::sleep_for(sample_interval);
    const auto figures = ask(fd_);
    if (!figures) return;
    ++samples_;
    for (const auto& [name, value] : *figures) most_[name] = std::max(most_[name], value);
  }
}

std::string ProxyAccount::finish() {
  if (!known_) return "no account of the server's memory: it is not a Spillway\n";
  std::this_thread::sleep_for(memory_goes_back);
  stop_ = true;
  thread_.join();
  auto after = ask(fd_);
  if (!after) return "no account of the proxy's memory: it does not answer any more\n";
  std::string out = "the proxy's own account        before         peak    2 s after\n";
  std::array<char, 160> line{};
  for (const Word& word : words) {
    const auto value = [&](Figures& figures) {
      return static_cast<double>(figures[word.key]) / (word.bytes ? mib : 1);
    };
    const char* format = word.bytes ? "  %-22s %9.1f MiB %8.1f MiB %8.1f MiB\n"
                                    : "  %-22s %9.0f     %8.0f     %8.0f\n";
    std::snprintf(line.data(), line.size(), format, word.shown, value(before_), value(most_),
                  value(*after));
    out += line.data();
  }
  const double limit = static_cast<double>((*after)["limit"]) / mib;
  std::snprintf(line.data(), line.size(),
                "  the budget's own peak since the start %.1f MiB, its limit %s%.1f MiB; %" PRIu64
                " samples\n",
                static_cast<double>((*after)["peak"]) / mib, limit > 0 ? "" : "none, ", limit,
                samples_);
  return out + line.data();
}

}  // namespace spillway::bench
