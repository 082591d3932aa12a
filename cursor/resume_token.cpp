#include "cursor/resume_token.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace spillway {

namespace {

// The types that the encoded values begin with.
constexpr std::uint8_t timestamp = 0x82, zero = 0x29, positive_1_byte = 0x2b, positive_8_bytes = 0x32, no = 0x6e,
                       yes = 0x6f, binary = 0x5a;

int digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Bytes of hexadecimal digits, from the left.
class Digits {
 public:
  explicit Digits(std::string_view text) noexcept : text_(text) {}
  std::size_t at() const noexcept { return at_; }
  bool failed() const noexcept { return failed_; }

  std::optional<std::uint8_t> peek() const noexcept {
    if (text_.size() < at_ + 2) return std::nullopt;
    const int high = digit(text_[at_]), low = digit(text_[at_ + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<std::uint8_t>(high * 16 + low);
  }
  std::uint64_t number(std::size_t bytes) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | next();
    return value;
  }
  // From here to the end, whole bytes.
  bool rest_is_whole() const noexcept {
    const std::string_view rest = text_.substr(std::min(at_, text_.size()));
    return rest.size() % 2 == 0 && std::all_of(rest.begin(), rest.end(), [](char c) { return digit(c) >= 0; });
  }
  std::uint8_t next() noexcept {
    const auto byte = peek();
    if (!byte) failed_ = true;
    at_ += 2;
    return byte.value_or(0);
  }
  // Zero and above.
  std::uint64_t integer() noexcept {
    const std::uint8_t type = next();
    if (type == zero) return 0;
    if (type < positive_1_byte || type > positive_8_bytes) {
      failed_ = true;
      return 0;
    }
    return number(std::size_t{1} + type - positive_1_byte) >> 1;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace

std::string_view token_digits(ValueView token) noexcept { return token.to_document()["_data"].to_text(); }

std::optional<ResumeToken> ResumeToken::parse(std::string_view digits) noexcept {
  Digits in(digits);
  ResumeToken token;
  if (in.next() != timestamp) return std::nullopt;
  token.cluster_time = in.number(8);
  token.version = in.integer();
  if (token.version == 0 || in.failed()) return std::nullopt;  // 4.0's: no type
  token.high_water_mark = in.integer() == 0;
  in.integer();  // of the statement in its transaction
  const std::uint8_t from_invalidate = in.next();
  if (from_invalidate != no && from_invalidate != yes) return std::nullopt;
  token.from_invalidate = from_invalidate == yes;
  if (in.failed() || !in.rest_is_whole()) return std::nullopt;
  token.event_at = in.at();
  if (in.peek() != binary) return token;
  in.next();
  const std::uint8_t bytes = in.next();
  in.number(std::size_t{1} + bytes);  // and the subtype
  if (in.failed()) return std::nullopt;
  token.document_key_at = in.at();
  return token;
}

namespace {

constexpr std::size_t time_size = 18, version_size = 4;  // of digits

// Has the longer one the shorter one's fields in front of its _id, further ones, and its _id? `from`: the fields.
bool has_more_in_front_of_id(std::string_view longer, std::string_view shorter, std::size_t from) noexcept {
  constexpr std::string_view of_id = "5F696400";  // "_id" and its end
  // The name may end another field's name, or a value: then the fields differ.
  for (std::size_t at = from; at + 2 + of_id.size() <= shorter.size(); at += 2) {
    if (shorter.substr(at + 2, of_id.size()) != of_id) continue;
    // A longer string goes on with FF where the shorter one has ended.
    const bool same_front = longer.starts_with(shorter.substr(0, at)) && longer.substr(at, 2) != "FF";
    if (same_front && longer.ends_with(shorter.substr(at))) return true;
  }
  return false;
}

// Up to 5.2 an insert's key has the fields that the shard key has when the event is read, and the _id: it has got more
// if the collection was sharded since, or its key refined, and less if the shard does not know the key any more.
bool is_same_event(std::string_view digits, std::string_view wanted) noexcept {
  if (digits == wanted) return true;
  const auto token = ResumeToken::parse(wanted);
  if (!token || token->document_key_at == 0) return false;
  const std::size_t fields_at = token->document_key_at + 2;  // behind an object's type
  return digits.size() > wanted.size() ? has_more_in_front_of_id(digits, wanted, fields_at)
                                       : has_more_in_front_of_id(wanted, digits, fields_at);
}

// The name and type of the document's key in version 2.
constexpr std::string_view document_key = "46646F63756D656E744B657900";

// The operations that a version 1 does not name.
bool is_classic(std::string_view operation) noexcept {
  static constexpr std::string_view classic[] = {
      "696E73657274",              // insert
      "757064617465",              // update
      "7265706C616365",            // replace
      "64656C657465",              // delete
      "64726F70",                  // drop
      "72656E616D65",              // rename
      "64726F704461746162617365",  // dropDatabase
  };
  return std::find(std::begin(classic), std::end(classic), operation) != std::end(classic);
}

// The digits that a shard to 6.0 has for the same event.
std::string in_version_1(std::string_view digits) {
  constexpr std::string_view operation_type = "463C6F7065726174696F6E54797065003C";
  const auto token = ResumeToken::parse(digits);
  if (!token || token->version < 2) return std::string(digits);
  const std::size_t head_end = token->document_key_at == 0 ? token->event_at : token->document_key_at;
  std::string made(digits.substr(0, head_end));
  made.replace(time_size, version_size, "2B02");
  if (token->document_key_at == 0) return made += "04";
  std::string_view rest = digits.substr(head_end);
  if (!rest.starts_with(operation_type)) return made.append(rest);
  std::size_t end = operation_type.size();
  while (end + 2 < rest.size() && rest.substr(end, 2) != "00") end += 2;
  const bool ends = end + 2 <= rest.size();
  if (!ends || !is_classic(rest.substr(operation_type.size(), end - operation_type.size()))) return made.append(rest);
  rest.remove_prefix(end + 2);
  // The key ends before the end of the object that it is in.
  if (rest.starts_with(document_key) && rest.ends_with("000004")) {
    rest.remove_prefix(document_key.size());
    made.append(rest.substr(0, rest.size() - 4));
  }
  return made += "04";
}

}  // namespace

bool is_same_time(std::string_view digits, std::string_view other) noexcept {
  return digits.substr(0, time_size) == other.substr(0, time_size);
}

bool is_same_version(std::string_view digits, std::string_view other) noexcept {
  return digits.substr(std::min(time_size, digits.size()), version_size) ==
         other.substr(std::min(time_size, other.size()), version_size);
}

std::weak_ordering event_order(std::string_view digits, std::string_view wanted) {
  if (!is_same_time(digits, wanted)) return digits <=> wanted;
  // A document that was moved is deleted and inserted at one time: version 2 tells the operations apart.
  const auto until_key = [](std::string_view each) {
    const auto token = ResumeToken::parse(each);
    return each.substr(0, token && token->version > 1 ? each.find(document_key) : 0);
  };
  const std::string_view front = until_key(digits), wanted_front = until_key(wanted);
  if (!front.empty() && !wanted_front.empty() && front != wanted_front) return digits <=> wanted;
  const std::string first = in_version_1(digits), second = in_version_1(wanted);
  if (is_same_event(first, second)) return std::weak_ordering::equivalent;
  if (is_same_version(digits, wanted)) return digits <=> wanted;
  // Version 2 compares operations first.
  const auto token = ResumeToken::parse(wanted);
  const std::size_t head = token ? token->document_key_at : 0;
  const bool same_head = head != 0 && first.compare(0, head, second, 0, head) == 0;
  if (same_head && token->version > 1) return std::weak_ordering::greater;
  return first <=> second;
}

}  // namespace spillway
