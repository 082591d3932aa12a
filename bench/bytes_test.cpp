#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <string>

#include "bench/bson_bytes.h"
#include "bench/crc32c.h"
#include "proxy/canned/documents.h"
#include "bench/message.h"

using namespace spillway::bench;

TEST_CASE("CRC-32C gives the published values, by instruction and by table", "[bench]") {
  const std::string digits = "123456789";
  REQUIRE(crc32c_finish(crc32c_extend(crc32c_seed, digits.data(), 9)) == 0xe3069283U);
  const std::string zeros(32, '\0');
  REQUIRE(crc32c_finish(crc32c_extend(crc32c_seed, zeros.data(), 32)) == 0x8a9136aaU);
  std::mt19937 random(3);
  std::string bytes(4 * 333, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (std::size_t size = 0; size <= 333; ++size) {
    const std::array<const char*, 4> from{&bytes[0], &bytes[333], &bytes[666], &bytes[999]};
    const auto four = crc32c_four(from, size);
    for (std::size_t run = 0; run < 4; ++run) {
      REQUIRE(four[run] == crc32c_extend_by_table(crc32c_seed, from[run], size));
    }
  }
}

TEST_CASE("the writer's documents are walked back, and every cut or changed length is noticed",
          "[bench]") {
  DocWriter writer;
  writer.add_int32("a", 7).open_document("b").add_text("c", "text").close();
  writer.open_array("d").add_double("0", 1.5).add_bool("1", true).close().add_int64("e", -9);
  const std::string document = writer.add_binary("f", std::string("\0x", 2)).take();
  REQUIRE(find_field(document, "a")->integer() == 7);
  REQUIRE(find_field(find_field(document, "b")->value, "c")->text() == "text");
  REQUIRE(find_field(find_field(document, "d")->value, "1")->truthy());
  REQUIRE(find_field(document, "e")->integer() == -9);
  REQUIRE_FALSE(find_field(document, "g"));
  for (std::size_t size = 0; size < document.size(); ++size) {
    FieldWalk walk(std::string_view(document).substr(0, size));
    while (walk.next()) {
    }
    REQUIRE(walk.malformed());
  }
  // A length inside that reaches beyond the document.
  std::string changed = document;
  changed[document.find("text") - 4] = 100;
  REQUIRE_FALSE(find_field(find_field(changed, "b")->value, "c"));
}

TEST_CASE("shapes are read from names, impossible ones are refused", "[bench]") {
  REQUIRE(parse_shape("docs_1024x300000")->doc_bytes == 1024);
  REQUIRE(parse_shape("docs_1024x300000")->count == 300'000);
  REQUIRE(parse_shape("point_200")->count == point_count_default);
  for (const char* name : {"docs_", "docs_40", "docs_x10", "docs_99999999", "docs_100x", "users",
                           "point_200y", "docs_100x-3", "docs_100x99999999999999"}) {
    CAPTURE(name);
    REQUIRE_FALSE(parse_shape(name));
  }
}

TEST_CASE("stamped documents have their size, number and CRC, and no two slots are alike",
          "[bench]") {
  DocumentImages::Options options;
  options.doc_bytes = 100;
  options.pool_bytes = 1'000;
  options.first_number = 2;
  options.number_stride = 3;
  DocumentImages images(options);
  REQUIRE(images.slots() == 10);
  std::set<std::string> payloads;
  std::int64_t local = 0;
  while (local < 25) {
    const auto run = images.stamp_bare(local, 25 - static_cast<std::size_t>(local), 1 << 20);
    REQUIRE(run.element_bytes == 100);
    for (std::size_t at = 0; at < run.elements; ++at, ++local) {
      const std::string_view bytes(run.bytes + at * 100, 100);
      const auto document = read_document(bytes);
      REQUIRE(document);
      REQUIRE(document->number == 2 + 3 * local);
      REQUIRE(document->crc == document_crc(document->payload, document->number));
      REQUIRE(find_field(bytes, "_id")->integer() == document->number);
      payloads.insert(std::string(document->payload));
      std::string changed(bytes);
      changed[60] = static_cast<char>(changed[60] ^ 1);
      const auto other = read_document(changed);
      REQUIRE(other);
      REQUIRE(other->crc != document_crc(other->payload, other->number));
    }
  }
  REQUIRE(payloads.size() == 10);
}

TEST_CASE("batch sizes are computed as they are sent", "[bench]") {
  DocumentImages::Options options;
  options.doc_bytes = 41;
  options.pool_bytes = 4'000;
  DocumentImages images(options);
  for (const std::size_t count : {0, 1, 9, 10, 11, 99, 100, 101, 1234, 12345}) {
    std::uint64_t bytes = 0;
    for (std::size_t index = 0; index < count;) {
      const auto run = images.stamp(static_cast<std::int64_t>(index), index, count - index, 500);
      REQUIRE(run.elements >= 1);
      // The key in front of each document is its index.
      REQUIRE(std::string(run.bytes + 1) == std::to_string(index));
      bytes += run.elements * run.element_bytes;
      index += run.elements;
    }
    REQUIRE(images.elements_bytes(count) == bytes);
    REQUIRE(images.elements_within(count, bytes + 5) == count);
    if (count > 1) REQUIRE(images.elements_within(count, bytes + 4) == count - 1);
  }
  REQUIRE(images.elements_within(5, 0) == 1);
}

TEST_CASE("requests are read with their sequences, and cut ones are refused", "[bench]") {
  const std::string body = DocWriter().add_text("insert", "c").add_text("$db", "d").take();
  const std::string document = DocWriter().add_int32("_id", 1).take();
  std::string section("\1", 1);
  const auto section_bytes = static_cast<std::int32_t>(4 + 10 + 2 * document.size());
  section.append(reinterpret_cast<const char*>(&section_bytes), 4);
  section.append("documents", 10).append(document).append(document);
  std::string message;
  append_op_msg_prefix(message, body.size() + section.size(), 5, 0);
  message += body + section;
  const auto request = read_request(message);
  REQUIRE(request);
  REQUIRE(request->body == body);
  REQUIRE(request->sequence_documents == 2);
  REQUIRE(request->wants_reply);
  const std::size_t body_only = op_msg_prefix_bytes + body.size();
  for (std::size_t size = 0; size < message.size(); ++size) {
    if (size == body_only) continue;  // a whole message of its own
    REQUIRE_FALSE(read_request(std::string_view(message).substr(0, size)));
  }
  message[header_bytes] = 2;  // moreToCome
  REQUIRE_FALSE(read_request(message)->wants_reply);
  message[header_bytes] = 4;  // an unknown required bit
  REQUIRE_FALSE(read_request(message));
}
