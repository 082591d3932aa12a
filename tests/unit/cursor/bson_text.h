// Documents and values of tests, written as Extended JSON.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "cursor/bson_writer.h"

namespace spillway::test {

inline BsonDoc json(std::string_view text) {
  auto doc = BsonDoc::from_json(text);
  if (doc.has_error()) {
    FAIL("not JSON: " << text << ": " << doc.error().message);
  }
  return *std::move(doc);
}

// A value that owns its bytes. `text` is its Extended JSON.
class Value {
 public:
  explicit Value(std::string text) : text_(std::move(text)), doc_(json("{\"v\": " + text_ + "}")) {}
  // A value that JSON cannot say, with a name for messages.
  Value(std::string text, BsonDoc doc) : text_(std::move(text)), doc_(std::move(doc)) {}
  ValueView view() const { return doc_.view().first(); }
  operator ValueView() const { return view(); }  // NOLINT: an owner reads as its view
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  BsonDoc doc_;
};

}  // namespace spillway::test
