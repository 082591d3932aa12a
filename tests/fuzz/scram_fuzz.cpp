// Any bytes as SCRAM messages, to both ends: no login succeeds without the password, and what is
// taken for a name survives the way back.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "proxy/auth/saslprep.h"
#include "proxy/auth/scram.h"

namespace {

using namespace spillway;
using namespace spillway::auth;

void expect(bool holds) {
  if (!holds) std::abort();
}

const ScramCredentials& credentials(Hash hash) {
  static const Secret::Ptr password = Secret::make("pencil");
  static const ScramCredentials both[] = {
      make_credentials(Hash::sha1, *password, bytes_of("salt of 16 bytes"), 4096),
      make_credentials(Hash::sha256, *password, bytes_of("salt of 16 bytes"), 4096)};
  return both[hash == Hash::sha1 ? 0 : 1];
}

// The server's answers to a first and a last message.
void serve(Hash hash, std::string_view first_message, std::string_view last_message) {
  const auto first = parse_client_first(first_message);
  if (first.has_error()) return;
  expect(!first->user.empty() && first->user.size() <= user_name_bytes_max);
  expect(first->header.size() + first->bare.size() == first_message.size());
  const ScramClient client(hash, first->user, nullptr, first->nonce);
  const auto again = parse_client_first(client.first_message());
  expect(again.has_value() && again->user == first->user && again->nonce == first->nonce);
  ScramServer server(hash, *first, credentials(hash), true, "a nonce that the input can repeat");
  expect(server.first_message().size() <= scram_message_bytes_max);
  const auto done = server.finish(last_message);
  // The proof would have to be found.
  expect(done.has_error() && !done.error().message.empty());
}

// The client's answers to a server's messages. It computes as long as it is told to: only little.
void ask(Hash hash, std::string_view first_message, std::string_view last_message) {
  static const Secret::Ptr password = Secret::make("pencil");
  const std::size_t at = first_message.find(",i=");
  if (at != std::string_view::npos && first_message.substr(at + 3) > "5") return;
  ScramClient client(hash, "user", password, "nonce");
  const auto answer = client.answer(first_message);
  expect(answer.has_error() || answer->starts_with("c=biws,r=nonce"));
  expect(client.verify(last_message).has_error());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 16'384) return 0;
  const Hash hash = (data[0] & 1) != 0 ? Hash::sha256 : Hash::sha1;
  const std::string_view text = text_of({data + 1, size - 1});
  const std::size_t line = std::min(text.find('\n'), text.size());
  const std::string_view first = text.substr(0, line);
  const std::string_view last = text.substr(std::min(line + 1, text.size()));
  serve(hash, first, last);
  if (size < 512) ask(hash, first, last);
  if (const auto bytes = from_base64(first)) expect(to_base64(*bytes) == first);
  if (size < 2048) {
    if (const auto prepared = saslprep(first)) expect(prepared->find('\0') == std::string::npos);
  }
  return 0;
}
