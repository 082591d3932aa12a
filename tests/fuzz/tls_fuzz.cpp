// TLS before anything is known of a peer: any bytes in place of a handshake, and bytes of a real one, or of what
// follows it, changed on their way. No end waits for ever, and what comes out is what went in at the other end, or less
// of it.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "proxy/base/tls_transport.h"
#include "tests/support/certificates.h"
#include "tests/support/sim_transport.h"

namespace {

using namespace spillway;

void expect(bool holds) {
  if (!holds) std::abort();
}

constexpr auto patience = std::chrono::seconds(10);

struct Change {
  std::size_t at = 0;
  std::uint8_t flipped = 0;
};

// Changes bytes that are written through it.
class Changing final : public Transport {
 public:
  Changing(std::unique_ptr<Transport> stream, std::vector<Change> changes)
      : stream_(std::move(stream)), changes_(std::move(changes)) {}
  Loop& loop() noexcept override { return stream_->loop(); }
  IoResult try_read(MutableBytes into) override { return stream_->try_read(into); }
  IoResult try_write(std::span<const iovec> pieces) override {
    bytes_.clear();
    for (const iovec& piece : pieces) {
      const auto* const from = static_cast<const std::uint8_t*>(piece.iov_base);
      bytes_.insert(bytes_.end(), from, from + piece.iov_len);
    }
    for (const Change& change : changes_) {
      if (change.at >= written_ && change.at - written_ < bytes_.size()) bytes_[change.at - written_] ^= change.flipped;
    }
    const iovec whole{bytes_.data(), bytes_.size()};
    const IoResult wrote = stream_->try_write({&whole, 1});
    if (wrote.ok()) written_ += wrote.bytes;
    return wrote;
  }
  void wait(Direction direction, IoWaiter& waiter) override { stream_->wait(direction, waiter); }
  void cancel() override { stream_->cancel(); }
  void close() override { stream_->close(); }
  void reset() override { stream_->reset(); }
  bool peer_hung_up() const noexcept override { return stream_->peer_hung_up(); }
  const std::string& peer() const noexcept override { return stream_->peer(); }
  const std::string& local() const noexcept override { return stream_->local(); }

 private:
  std::unique_ptr<Transport> stream_;
  std::vector<Change> changes_;
  std::vector<std::uint8_t> bytes_;
  std::size_t written_ = 0;
};

struct End {
  std::unique_ptr<Transport> transport;
  std::string received = {};
  bool established = false;
  bool done = false;
};

// Shakes hands, sends `text`, and reads until the peer ends or time is up.
Task<void> live(End& end, const std::string& text) {
  const TimePoint deadline = Clock::now() + patience;
  auto establishing = end.transport->establish(deadline);
  const Result<void> established = co_await establishing;
  end.established = !established.has_error();
  if (end.established) {
    iovec piece{const_cast<char*>(text.data()), text.size()};
    co_await WriteAll(*end.transport, {&piece, 1}, deadline);
    for (;;) {
      std::uint8_t bytes[700];
      const IoResult got = end.transport->try_read(bytes);
      if (got.ok()) end.received.append(reinterpret_cast<const char*>(bytes), got.bytes);
      if (got.ok()) continue;
      if (!got.would_block()) break;
      ReadyWait readable(*end.transport, Transport::Direction::read, deadline);
      const bool ready = co_await readable;
      if (!ready) break;
    }
  }
  end.transport->close();
  end.done = true;
}

const TlsContext::Ptr& server_context() {
  static const Certificates certificates;
  static const TlsContext::Ptr context =
      TlsContext::make_server({.files = {.certificate_key = certificates.server(), .ca = certificates.ca()},
                               .clients_without_certificate = true})
          .value();
  return context;
}

const TlsContext::Ptr& client_context() {
  static const TlsContext::Ptr context = TlsContext::make_client({.invalid_certificates = true}).value();
  return context;
}

Task<void> throw_in(Transport& raw, Bytes bytes) {
  iovec piece{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  co_await WriteAll(raw, {&piece, 1}, Clock::now() + patience);
  raw.close();
}

void noise(Bytes bytes, bool plain_text) {
  Loop loop(Loop::Drive::manual);
  test::SimNetwork network(loop);
  auto [near, far] = network.pair();
  End server{make_tls_server(std::move(far), server_context(),
                             plain_text ? PlainText::allowed : PlainText::refused)};
  const std::string text(5000, 'x');
  loop.spawn(live(server, text));
  loop.spawn(throw_in(*near, bytes));
  expect(test::run_until(loop, [&] { return server.done; }, 4 * patience));
  expect(plain_text || !server.established);
  if (server.established) {
    const std::string sent(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    expect(sent.starts_with(server.received));
  }
}

void changed_handshake(Bytes bytes, bool of_server) {
  std::vector<Change> changes;
  for (std::size_t i = 0; i + 3 <= bytes.size() && changes.size() < 8; i += 3) {
    changes.push_back({static_cast<std::size_t>(bytes[i] | bytes[i + 1] << 8), bytes[i + 2]});
  }
  Loop loop(Loop::Drive::manual);
  test::SimNetwork network(loop);
  auto [near, far] = network.pair();
  std::unique_ptr<Transport> client_stream = std::move(near);
  std::unique_ptr<Transport> server_stream = std::move(far);
  auto& changing = of_server ? server_stream : client_stream;
  changing = std::make_unique<Changing>(std::move(changing), std::move(changes));
  End client{make_tls_client(std::move(client_stream), client_context(), "localhost")};
  End server{make_tls_server(std::move(server_stream), server_context(), PlainText::refused)};
  const std::string question(3000, 'q');
  const std::string answer(20'000, 'a');
  loop.spawn(live(client, question));
  loop.spawn(live(server, answer));
  expect(test::run_until(loop, [&] { return client.done && server.done; }, 4 * patience));
  expect(question.starts_with(server.received));
  expect(answer.starts_with(client.received));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 40'000) return 0;
  const Bytes rest(data + 1, size - 1);
  const bool second = (data[0] & 2) != 0;
  if ((data[0] & 1) != 0) {
    changed_handshake(rest, second);
  } else {
    noise(rest, second);
  }
  return 0;
}
