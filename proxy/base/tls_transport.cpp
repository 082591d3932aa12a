#include "proxy/base/tls_transport.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "proxy/base/check.h"
#include "proxy/base/ip_address.h"
#include "proxy/base/tls_errors.h"

namespace spillway {

namespace {

constexpr std::size_t record_bytes_max = SSL3_RT_MAX_PLAIN_LENGTH;
// A record, and OpenSSL's own messages.
constexpr std::size_t pending_bytes_max = 64 * 1024;
// Enough to tell TLS from a message: the first byte and the version. As a message's length they would be 66,326 bytes
// at least; a client's first message is shorter.
constexpr std::size_t telling_bytes = 3;
constexpr char handshake_record = 0x16;

class TlsTransport final : public Transport {
 public:
  TlsTransport(std::unique_ptr<Transport> stream, TlsContext::Ptr context, PlainText plain_text,
               std::string host, Bytes ahead)
      : stream_(std::move(stream)),
        context_(std::move(context)),
        host_(std::move(host)),
        ahead_(ahead.begin(), ahead.end()),
        plain_text_(plain_text) {}
  ~TlsTransport() override { SSL_free(ssl_); }

  Loop& loop() noexcept override { return stream_->loop(); }
  Task<Result<void>> establish(TimePoint deadline) override;
  IoResult try_read(MutableBytes into) override;
  IoResult try_write(std::span<const iovec> pieces) override;
  void wait(Direction direction, IoWaiter& waiter) override;
  void cancel() override { stream_->cancel(); }
  void close() override;
  void reset() override { stream_->reset(); }
  bool can_release() const noexcept override {
    return ssl_ == nullptr && established_ && ahead_.empty() && stream_->can_release();
  }
  FileDescriptor release() override { return stream_->release(); }
  void grow_receive_buffer(int bytes) override { stream_->grow_receive_buffer(bytes); }
  void set_read_low_water(std::size_t bytes) override;
  bool holds_wanted_memory() const noexcept override { return stream_->holds_wanted_memory(); }
  bool peer_hung_up() const noexcept override { return stream_->peer_hung_up(); }
  bool timed_out() const noexcept override { return stream_->timed_out(); }
  PeerCertificate peer_certificate() const override;
  bool encrypted() const noexcept { return ssl_ != nullptr; }
  const std::string& peer() const noexcept override { return stream_->peer(); }
  const std::string& local() const noexcept override { return stream_->local(); }

  // OpenSSL's door to the stream.
  static int bio_read(BIO* bio, char* into, int size);
  static int bio_write(BIO* bio, const char* bytes, int size);
  static long bio_control(BIO* bio, int command, long number, void* pointer);

 private:
  Task<Result<bool>> begins_with_tls(TimePoint deadline);
  bool start_tls();
  bool name_server();
  IoResult read_plain(MutableBytes into);
  IoResult::Status flush();
  IoResult encrypt(std::span<const iovec> pieces, std::size_t skip);
  Error handshake_error(int code) const;

  std::unique_ptr<Transport> stream_;
  TlsContext::Ptr context_;
  SSL* ssl_ = nullptr;  // null: plain text, or not established
  std::string host_;
  std::string session_key_;
  std::string pending_;     // encrypted, not taken by the stream yet
  std::size_t unsent_ = 0;  // of what was encrypted, plain: reported as written once it has left
  std::string ahead_;  // of the stream, read before, or to tell TLS from plain text
  PlainText plain_text_;
  bool read_blocked_ = false;  // the last read ended for want of bytes from the stream
  bool established_ = false;
  bool broken_ = false;
};

// --- the stream, as OpenSSL sees it

int TlsTransport::bio_read(BIO* bio, char* into, int size) {
  auto& self = *static_cast<TlsTransport*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const IoResult got = self.read_plain(
      {reinterpret_cast<std::uint8_t*>(into), static_cast<std::size_t>(std::max(size, 0))});
  if (got.ok()) return static_cast<int>(got.bytes);
  if (got.would_block()) BIO_set_retry_read(bio);
  return got.status == IoResult::Status::closed ? 0 : -1;
}

int TlsTransport::bio_write(BIO* bio, const char* bytes, int size) {
  auto& self = *static_cast<TlsTransport*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  std::size_t left = static_cast<std::size_t>(std::max(size, 0));
  while (self.pending_.empty() && left > 0) {
    const iovec piece{const_cast<char*>(bytes), left};
    const IoResult wrote = self.stream_->try_write({&piece, 1});
    if (wrote.would_block()) break;
    if (!wrote.ok()) return -1;
    bytes += wrote.bytes;
    left -= wrote.bytes;
  }
  // OpenSSL's writes never block, so that it can read while writing is impossible. The bound stops a peer that keeps
  // asking for new keys and reads nothing.
  if (self.established_ && self.pending_.size() + left > pending_bytes_max) return -1;
  self.pending_.append(bytes, left);
  return size;
}

long TlsTransport::bio_control(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* stream_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "transport");
    BIO_meth_set_read(made, TlsTransport::bio_read);
    BIO_meth_set_write(made, TlsTransport::bio_write);
    BIO_meth_set_ctrl(made, TlsTransport::bio_control);
    return made;
  }();
  return method;
}

// --- the handshake

bool TlsTransport::start_tls() {
  ERR_clear_error();
  ssl_ = SSL_new(context_->native());
  BIO* const bio = ssl_ == nullptr ? nullptr : BIO_new(stream_method());
  if (bio == nullptr) return false;
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  // A session says nothing about other names of the peer: its certificate is not seen again.
  session_key_ = host_ + '\n' + peer();
  SSL_set_ex_data(ssl_, 0, &session_key_);
  if (context_->role() == TlsContext::Role::server) {
    SSL_set_accept_state(ssl_);
    return true;
  }
  SSL_set_connect_state(ssl_);
  if (SSL_SESSION* const session = context_->take_session(session_key_)) {
    SSL_set_session(ssl_, session);
    SSL_SESSION_free(session);
  }
  const bool by_address = IpAddress::parse(host_).has_value();
  if (!by_address && !name_server()) return false;
  if (!context_->checks_hostnames()) return true;
  return by_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), host_.c_str()) == 1
                    : SSL_set1_host(ssl_, host_.c_str()) == 1;
}

// Server name indication (RFC 6066).
bool TlsTransport::name_server() {
  return SSL_ctrl(ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, host_.data()) == 1;
}

Task<Result<bool>> TlsTransport::begins_with_tls(TimePoint deadline) {
  while (ahead_.size() < telling_bytes) {
    std::array<std::uint8_t, telling_bytes> some;
    const IoResult got = stream_->try_read(MutableBytes(some).first(telling_bytes - ahead_.size()));
    if (got.ok()) {
      ahead_.append(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got.bytes));
      continue;
    }
    // An ended stream is told by the first read.
    if (!got.would_block()) co_return false;
    ReadyWait readable(*stream_, Direction::read, deadline);
    const bool ready = co_await readable;
    if (!ready) co_return Error(ErrorCode::ssl_handshake_failed, "nothing was sent");
  }
  const auto version = static_cast<std::uint8_t>(ahead_[2]);
  co_return ahead_[0] == handshake_record && ahead_[1] == 3 && version >= 1 && version <= 4;
}

Error TlsTransport::handshake_error(int code) const {
  const long verified = SSL_get_verify_result(ssl_);
  if (verified != X509_V_OK) {
    ERR_clear_error();
    return Error(ErrorCode::ssl_handshake_failed,
                 fmt::format("SSL peer certificate validation failed: {}",
                             X509_verify_cert_error_string(verified)));
  }
  if (code == SSL_ERROR_ZERO_RETURN || (code == SSL_ERROR_SYSCALL && ERR_peek_error() == 0)) {
    return Error(ErrorCode::ssl_handshake_failed, "the peer closed the connection");
  }
  const int reason = ERR_GET_REASON(ERR_peek_error());
  if (context_->role() == TlsContext::Role::server &&
      (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST)) {
    ERR_clear_error();
    return Error(ErrorCode::ssl_handshake_failed, "it does not speak TLS, which is required");
  }
  return Error(ErrorCode::ssl_handshake_failed, tls_error_text());
}

Task<Result<void>> TlsTransport::establish(TimePoint deadline) {
  if (plain_text_ == PlainText::allowed) {
    const Result<bool> tls = co_await begins_with_tls(deadline);
    if (tls.has_error()) co_return tls.error();
    established_ = !*tls;
    if (established_) co_return Result<void>();
  }
  if (!start_tls()) co_return Error(ErrorCode::ssl_handshake_failed, tls_error_text());
  for (;;) {
    ERR_clear_error();
    const int code = SSL_get_error(ssl_, SSL_do_handshake(ssl_));
    const IoResult::Status flushed = flush();
    if (code != SSL_ERROR_NONE && code != SSL_ERROR_WANT_READ) {
      broken_ = true;
      co_return handshake_error(code);
    }
    if (flushed == IoResult::Status::failed) {
      broken_ = true;
      co_return Error(ErrorCode::ssl_handshake_failed, "the peer closed the connection");
    }
    if (code == SSL_ERROR_NONE && flushed == IoResult::Status::ok) break;
    const Direction direction =
        flushed == IoResult::Status::would_block ? Direction::write : Direction::read;
    ReadyWait turn(*stream_, direction, deadline);
    const bool ready = co_await turn;
    if (!ready) {
      broken_ = true;
      if (turn.timed_out()) co_return Error(ErrorCode::network_timeout, "the handshake took too long");
      co_return Error(ErrorCode::ssl_handshake_failed, "it was interrupted");
    }
  }
  established_ = true;
  co_return Result<void>();
}

// --- reading and writing

// The stream's bytes, those first that were read ahead.
IoResult TlsTransport::read_plain(MutableBytes into) {
  if (ahead_.empty()) return stream_->try_read(into);
  const std::size_t count = std::min(into.size(), ahead_.size());
  std::memcpy(into.data(), ahead_.data(), count);
  ahead_.erase(0, count);
  if (ahead_.empty()) std::string().swap(ahead_);
  return {IoResult::Status::ok, count};
}

IoResult TlsTransport::try_read(MutableBytes into) {
  if (!established_ || broken_) return {IoResult::Status::failed, 0};
  if (ssl_ == nullptr) {
    const IoResult got = read_plain(into);
    read_blocked_ = !got.ok();
    return got;
  }
  if (flush() == IoResult::Status::failed) return {IoResult::Status::failed, 0};
  ERR_clear_error();
  std::size_t total = 0;
  int code = SSL_ERROR_NONE;
  while (total < into.size()) {
    std::size_t count = 0;
    const int done = SSL_read_ex(ssl_, into.data() + total, into.size() - total, &count);
    if (done != 1) {
      code = SSL_get_error(ssl_, done);
      break;
    }
    total += count;
  }
  read_blocked_ = code == SSL_ERROR_WANT_READ;
  if (total > 0) return {IoResult::Status::ok, total};
  if (code == SSL_ERROR_WANT_READ) return {IoResult::Status::would_block, 0};
  if (code == SSL_ERROR_ZERO_RETURN) return {IoResult::Status::closed, 0};
  broken_ = true;
  ERR_clear_error();
  return {IoResult::Status::failed, 0};
}

IoResult::Status TlsTransport::flush() {
  std::size_t sent = 0;
  IoResult::Status status = IoResult::Status::ok;
  while (sent < pending_.size()) {
    const iovec piece{pending_.data() + sent, pending_.size() - sent};
    const IoResult wrote = stream_->try_write({&piece, 1});
    status = wrote.status;
    if (!wrote.ok()) break;
    sent += wrote.bytes;
  }
  if (sent == pending_.size()) {
    std::string().swap(pending_);
    return IoResult::Status::ok;
  }
  pending_.erase(0, sent);
  return status;
}

// One record, of what stands behind the first `skip` bytes. A small one is gathered.
IoResult TlsTransport::encrypt(std::span<const iovec> pieces, std::size_t skip) {
  while (!pieces.empty() && skip >= pieces.front().iov_len) {
    skip -= pieces.front().iov_len;
    pieces = pieces.subspan(1);
  }
  if (pieces.empty()) return {IoResult::Status::ok, 0};
  const auto* plain = static_cast<const std::uint8_t*>(pieces.front().iov_base) + skip;
  std::size_t size = std::min(pieces.front().iov_len - skip, record_bytes_max);
  std::array<std::uint8_t, record_bytes_max> gathered;
  if (size < record_bytes_max && pieces.size() > 1) {
    std::memcpy(gathered.data(), plain, size);
    for (const iovec& piece : pieces.subspan(1)) {
      const std::size_t more = std::min(piece.iov_len, gathered.size() - size);
      if (more > 0) std::memcpy(gathered.data() + size, piece.iov_base, more);
      size += more;
      if (size == gathered.size()) break;
    }
    plain = gathered.data();
  }
  ERR_clear_error();
  std::size_t taken = 0;
  if (SSL_write_ex(ssl_, plain, size, &taken) == 1) return {IoResult::Status::ok, taken};
  broken_ = true;
  ERR_clear_error();
  return {IoResult::Status::failed, 0};
}

IoResult TlsTransport::try_write(std::span<const iovec> pieces) {
  if (!established_ || broken_) return {IoResult::Status::failed, 0};
  if (ssl_ == nullptr) return stream_->try_write(pieces);
  if (const IoResult::Status flushed = flush(); flushed != IoResult::Status::ok) {
    return {flushed, 0};
  }
  // The caller passes the bytes again that did not count: some of them have left meanwhile.
  std::size_t total = std::exchange(unsent_, 0);
  for (;;) {
    const IoResult done = encrypt(pieces, total);
    if (!done.ok()) return done;
    if (done.bytes == 0) return {IoResult::Status::ok, total};
    if (!pending_.empty()) {
      unsent_ = done.bytes;
      if (total == 0) return {IoResult::Status::would_block, 0};
      return {IoResult::Status::ok, total};
    }
    total += done.bytes;
  }
}

void TlsTransport::wait(Direction direction, IoWaiter& waiter) {
  const bool at_hand = direction == Direction::read
                           ? established_ && !read_blocked_
                           : established_ && ssl_ != nullptr && pending_.empty();
  if (!at_hand) {
    stream_->wait(direction, waiter);
    return;
  }
  IoWaiter* const target = &waiter;
  loop().post([target] { target->on_ready(false); });
}

// Encrypted bytes are at least as many as plain ones; but a part of a record may have been read already.
void TlsTransport::set_read_low_water(std::size_t bytes) {
  const std::size_t read_before = ssl_ == nullptr ? 0 : SSL3_RT_MAX_ENCRYPTED_LENGTH;
  stream_->set_read_low_water(bytes > 2 * read_before ? bytes - read_before : 1);
}

PeerCertificate TlsTransport::peer_certificate() const {
  // Without a CA file every certificate passes as verified.
  if (ssl_ == nullptr || !established_ || !context_->has_authorities() ||
      SSL_get_verify_result(ssl_) != X509_V_OK) {
    return {};
  }
  X509* const certificate = SSL_get0_peer_certificate(ssl_);
  if (certificate == nullptr) return {};
  return {tls_subject(certificate), tls_names_roles(certificate)};
}

void TlsTransport::close() {
  if (ssl_ != nullptr && established_ && !broken_) {
    ERR_clear_error();
    if (pending_.empty()) SSL_shutdown(ssl_);
    ERR_clear_error();
  }
  broken_ = true;
  stream_->close();
}

}  // namespace

std::unique_ptr<Transport> make_tls_server(std::unique_ptr<Transport> stream,
                                           TlsContext::Ptr context, PlainText plain_text,
                                           Bytes ahead) {
  SPILLWAY_CHECK(context->role() == TlsContext::Role::server);
  return std::make_unique<TlsTransport>(std::move(stream), std::move(context), plain_text,
                                        std::string(), ahead);
}

bool speaks_tls(const Transport& transport) noexcept {
  const auto* tls = dynamic_cast<const TlsTransport*>(&transport);
  return tls != nullptr && tls->encrypted();
}

std::unique_ptr<Transport> make_tls_client(std::unique_ptr<Transport> stream,
                                           TlsContext::Ptr context, const std::string& host) {
  SPILLWAY_CHECK(context->role() == TlsContext::Role::client);
  return std::make_unique<TlsTransport>(std::move(stream), std::move(context), PlainText::refused,
                                        host, Bytes());
}

}  // namespace spillway
