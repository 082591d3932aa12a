#include "proxy/server/tools/top.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "cursor/bson_writer.h"
#include "cursor/utf8.h"
#include "proxy/base/run_alone.h"
#include "proxy/base/tcp_transport.h"
#include "proxy/server/tools/command_line.h"
#include "proxy/server/tools/health_check.h"
#include "proxy/server/tools/top_picture.h"
#include "proxy/server/traces/http_client.h"

namespace spillway::server {

namespace {

constexpr auto answer_patience = std::chrono::seconds(3);
constexpr int pause_ms = 1'000;

volatile std::sig_atomic_t told_to_end = 0;
void on_end(int) { told_to_end = 1; }

// Keys come at once and unseen, and what was on the screen before comes back.
class Screen {
 public:
  Screen() {
    if (::tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios now = before_;
      now.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | ISIG);
      changed_ = ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &now) == 0;
    }
    struct sigaction ending {};
    ending.sa_handler = on_end;  // poll() ends with it
    for (const int signal : {SIGTERM, SIGHUP, SIGINT}) ::sigaction(signal, &ending, nullptr);
    std::fputs("\x1b[?1049h\x1b[?25l", stdout);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() {
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  }

  static PictureSize size() {
    winsize window{};
    PictureSize size;
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 2 && window.ws_col > 1) {
      size = {window.ws_row - 2U, window.ws_col - 1U};  // a line of trouble above it
    }
    return size;
  }
  // In place, without a blank screen in between; each line wipes what it leaves of the one before.
  static void show(std::string_view picture) {
    std::string out = "\x1b[H";
    for (const char c : picture) {
      if (c == '\n') out += "\x1b[K\r";
      out += c;
    }
    out += "\x1b[J";
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
  }

 private:
  termios before_{};
  bool changed_ = false;
};

// False: the end was asked for.
bool pause(bool keys) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const TimePoint until = Clock::now() + std::chrono::milliseconds(pause_ms);
  while (told_to_end == 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return true;
    if (::poll(&input, keys ? 1 : 0, static_cast<int>(left)) <= 0) continue;
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q' || key == 3) return false;
  }
  return false;
}

Result<std::string> ask(const shard::HostAddress& address) {
  Loop loop;
  TcpNetwork network(loop, TcpOptions());
  auto outcome = run_alone(loop, http_get(network, address, "/live", Clock::now() + answer_patience));
  if (outcome.has_error()) return outcome.error();
  HttpAnswer answer = *std::move(outcome);
  if (answer.status == 200) return std::move(answer.body);
  return Error(ErrorCode::operation_failed, fmt::format("the answer is {}: {}", answer.status, answer.body));
}

Result<BsonDoc> look(const shard::HostAddress& address) {
  auto text = ask(address);
  if (text.has_error()) return text.error();
  return BsonDoc::from_json(*text);
}

int fail(const shard::HostAddress& address, const Error& why) {
  std::fprintf(stderr, "spillway: the admin port %s does not answer: %s\n", address.text().c_str(),
               why.message.c_str());
  return exit_failed;
}

int print_documents(const shard::HostAddress& address, bool once) {
  for (;;) {
    const auto text = ask(address);
    if (text.has_error()) return fail(address, text.error());
    if (std::printf("%s\n", text->c_str()) < 0 || std::fflush(stdout) != 0) return exit_failed;
    if (once || !pause(false)) return exit_ok;
  }
}

int draw_once(const shard::HostAddress& address, const BsonDoc& before) {
  pause(false);
  const auto now = look(address);
  if (now.has_error()) return fail(address, now.error());
  const DocView earlier = before.view();
  std::fputs(draw_top(now->view(), &earlier, {.rows = 1'000, .columns = 1'000}).c_str(), stdout);
  return exit_ok;
}

int draw_on(const shard::HostAddress& address, BsonDoc now) {
  const Screen screen;
  std::optional<BsonDoc> before;
  std::string trouble;
  for (;;) {
    const DocView earlier = before ? before->view() : DocView();
    Screen::show(trouble + draw_top(now.view(), before ? &earlier : nullptr, Screen::size()));
    if (!pause(true)) return exit_ok;
    auto next = look(address);
    trouble = next.has_error() ? fmt::format("no answer now: {}\n", clean_text(next.error().message, 200)) : "";
    if (!next.has_error()) before = std::exchange(now, *std::move(next));
  }
}

}  // namespace

int top(const LoadResult& loaded, TopOptions options) {
  if (!loaded.net_known || loaded.config.net.admin.port.value_or(0) == 0) {
    for (const std::string& error : loaded.errors) std::fprintf(stderr, "spillway: %s\n", error.c_str());
    std::fputs("spillway: top asks the router's admin port, and this configuration names none: --config FILE with "
               "net.admin.port, or --set net.admin.port=9216\n",
               stderr);
    return exit_failed;
  }
  const shard::HostAddress address = admin_address(loaded.config.net);
  if (options.json) return print_documents(address, options.once);
  auto first = look(address);
  if (first.has_error()) return fail(address, first.error());
  if (options.once || ::isatty(STDOUT_FILENO) == 0) return draw_once(address, *first);
  return draw_on(address, *std::move(first));
}

}  // namespace spillway::server
