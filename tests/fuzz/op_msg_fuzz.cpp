// Any bytes as a request: OP_MSG, OP_QUERY, OP_COMPRESSED, hello, cursor replies. What parses is
// encoded again and must parse to the same.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "proxy/wire/compression.h"
#include "proxy/wire/cursor_reply.h"
#include "proxy/wire/hello.h"
#include "proxy/wire/op_msg.h"
#include "proxy/wire/op_query.h"
#include "tests/support/op_msg_sequence.h"

namespace {

using namespace spillway;
using namespace spillway::wire;

void expect(bool holds) {
  if (!holds) {
    std::abort();
  }
}

bool same_bytes(DocView a, DocView b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

void encode_again(const OpMsg& parsed) {
  std::vector<std::uint8_t> out;
  begin_op_msg(out, 1, 2, parsed.flags);
  for (const DocSequence& sequence : parsed.sequences) {
    append_sequence(out, sequence.name, sequence.documents);
  }
  append_body(out, parsed.body);
  finish_op_msg(out, parsed.has_flag(flags::checksum_present));
  const Result<OpMsg> again = parse_op_msg(out);
  expect(again.has_value());
  expect(again->flags == parsed.flags);
  expect(same_bytes(again->body, parsed.body));
  expect(again->sequences.size() == parsed.sequences.size());
  for (const DocSequence& sequence : parsed.sequences) {
    const DocSequence* twin = again->sequence(sequence.name);
    expect(twin != nullptr && twin->count == sequence.count);
    std::size_t count = 0;
    for (DocView document : sequence) {
      expect(document.size() >= 5);
      ++count;
    }
    expect(count == sequence.count);
  }
}

void read_document(DocView document) {
  if (const Result<HelloRequest> hello = parse_hello(document); hello && hello->compression) {
    const Compressor enabled[] = {Compressor::snappy, Compressor::zstd};
    expect(negotiate(enabled, *hello->compression).size() <= 2);
  }
  if (const Result<CursorReply> reply = parse_cursor_reply(document)) {
    expect(!reply->batch_name.empty());
    for (const Element& element : reply->batch) {
      expect(element.raw.size() > element.bytes.size());
    }
  } else {
    expect(reply.error().code != 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < limits::message_header_bytes) {
    return 0;
  }
  std::vector<std::uint8_t> message(data, data + size);
  store_le(message.data(), static_cast<std::int32_t>(size));  // else little gets any further
  if (const Result<OpMsg> parsed = parse_op_msg(message, false)) {
    encode_again(*parsed);
    read_document(parsed->body);
  } else {
    expect(parsed.error().code != 0);
  }
  if (const Result<OpQuery> query = parse_op_query(message)) {
    const DocView command = unwrap_query(query->query);
    is_hello_command(command);
    read_document(command);
  }
  constexpr std::uint32_t size_max = 1 << 20;  // for the fuzzer's speed
  const Result<CompressedHeader> header = parse_compressed(message);
  if (header && header->uncompressed_size <= size_max) {
    std::vector<std::uint8_t> inner(limits::message_header_bytes + header->uncompressed_size);
    if (decompress_message(*parse_header(message), *header, inner)) {
      (void)parse_op_msg(inner).has_value();
    }
  }
  return 0;
}
