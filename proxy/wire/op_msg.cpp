#include "proxy/wire/op_msg.h"

#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <string>
#include <utility>

#include "proxy/wire/crc32c.h"
#include "proxy/wire/op_msg_parser.h"

namespace spillway::wire {
namespace {

// Codes without a name, as the server numbers them.
constexpr std::int32_t code_second_body = 40430;
constexpr std::int32_t code_same_sequence_twice = 40431;
constexpr std::int32_t code_unknown_section = 40432;
constexpr std::int32_t code_body_names_sequence = 40433;
constexpr std::int32_t code_no_body = 40587;
constexpr std::int32_t code_bad_length = 51251;
constexpr std::int32_t code_no_room_for_checksum = 51252;

constexpr std::size_t flags_bytes = 4;
constexpr std::size_t checksum_bytes = 4;
constexpr std::uint32_t required_flags = 0xffff;  // unknown ones among these are refused
constexpr std::uint32_t known_flags = flags::checksum_present | flags::more_to_come;
constexpr std::uint8_t kind_body = 0;
constexpr std::uint8_t kind_sequence = 1;

// Is one name the other, or a dotted prefix of it?
bool names_collide(std::string_view a, std::string_view b) noexcept {
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && (a.size() == b.size() || b[a.size()] == '.');
}

// Names seen so far: compared one by one while they are few, hashed beyond that.
class NameSet {
 public:
  bool insert(std::string_view name) {
    if (count_ < few_.size()) {
      for (std::size_t i = 0; i < count_; ++i) {
        if (few_[i] == name) return false;
      }
      few_[count_++] = name;
      return true;
    }
    if (many_.empty()) many_.insert(few_.begin(), few_.end());
    return many_.insert(name).second;
  }

 private:
  std::array<std::string_view, 24> few_;
  std::size_t count_ = 0;
  absl::flat_hash_set<std::string_view> many_;
};

Result<void> check_body(DocView body, bool unique_names, ElementIndex& fields) {
  NameSet names;
  std::size_t count = 0;
  fields.begin(body);
  DocIterator it = body.begin();
  for (; !it.done(); ++it) {
    fields.add(*it);
    if (!unique_names) continue;
    if (++count > body_fields_max) {
      return Error(ErrorCode::failed_to_parse,
                   "command has more than " + std::to_string(body_fields_max) + " top level keys");
    }
    if (!names.insert(it->name)) {
      return Error(
          ErrorCode::failed_to_parse,
          "Parsed command object contains duplicate top level key: " + std::string(it->name));
    }
  }
  if (it.malformed()) return Error(ErrorCode::invalid_bson, "the body of the message is not valid BSON");
  return {};
}

Result<DocView> parse_document(Bytes bytes) {
  Result<DocView> document = DocView::parse(bytes);
  if (document && document->size() > limits::internal_document_bytes_max) {
    return Error(ErrorCode::bson_object_too_large,
                 "BSON document of " + std::to_string(document->size()) + " bytes is larger than " +
                     std::to_string(limits::internal_document_bytes_max));
  }
  return document;
}

}  // namespace

// Walks over the sections of one message.
class SectionParser {
 public:
  // `into`: a message without content, which outlives this.
  SectionParser(Bytes sections, bool unique_names, std::uint32_t message_flags, OpMsg& into)
      : rest_(sections), unique_names_(unique_names), message_(into) {
    message_.flags = message_flags;
  }

  // Looks at the next `documents` documents of sequences. True: that was all.
  Result<bool> step(std::size_t documents) {
    for (;;) {
      if (Result<void> counted = count_documents(documents); !counted) return std::move(counted).error();
      if (!uncounted_.empty()) return false;
      if (rest_.empty()) break;
      const std::uint8_t kind = rest_[0];
      rest_ = rest_.subspan(1);
      Result<void> section = kind == kind_body       ? take_body()
                             : kind == kind_sequence ? take_sequence()
                                                     : unknown(kind);
      if (!section) return std::move(section).error();
    }
    if (!has_body_) return Error(code_no_body, "OP_MSG messages must have a body");
    if (Result<void> apart = check_names_apart(); !apart) return std::move(apart).error();
    return true;
  }
 private:
  static Result<void> unknown(std::uint8_t kind) {
    return Error(code_unknown_section, "Unknown section kind " + std::to_string(kind));
  }

  Result<void> take_body() {
    if (has_body_) return Error(code_second_body, "Multiple body sections in message");
    Result<DocView> body = parse_document(rest_);
    if (!body) return std::move(body).error();
    if (body->empty()) return Error(ErrorCode::failed_to_parse, "the body of the message is an empty document");
    has_body_ = true;
    message_.body = *body;
    rest_ = rest_.subspan(body->size());
    return check_body(*body, unique_names_, message_.fields);
  }

  Result<void> take_sequence() {
    if (message_.sequences.size() == limits::document_sequences_max) {
      return Error(ErrorCode::too_many_document_sequences, "Too many document sequences in OP_MSG");
    }
    if (rest_.size() < 4) return Error(code_bad_length, "document sequence without a size");
    const auto size = load_le<std::int32_t>(rest_.data());
    if (size < 5 || static_cast<std::size_t>(size) > rest_.size()) {
      return Error(code_bad_length,
                   "document sequence with a wrong size of " + std::to_string(size));
    }
    const Bytes section = rest_.subspan(4, static_cast<std::size_t>(size) - 4);
    rest_ = rest_.subspan(static_cast<std::size_t>(size));
    const auto nul = std::find(section.begin(), section.end(), std::uint8_t{0});
    if (nul == section.end()) return Error(code_bad_length, "document sequence whose name does not end");
    DocSequence sequence;
    const auto name_size = static_cast<std::size_t>(nul - section.begin());
    sequence.name = {reinterpret_cast<const char*>(section.data()), name_size};
    sequence.documents = section.subspan(name_size + 1);
    if (message_.sequence(sequence.name) != nullptr) {
      return Error(code_same_sequence_twice,
                   "Duplicate document sequence: " + std::string(sequence.name));
    }
    uncounted_ = sequence.documents;
    message_.sequences.push_back(sequence);
    return {};
  }

  // Of the last sequence.
  Result<void> count_documents(std::size_t& most) {
    if (uncounted_.empty()) {
      return {};
    }
    DocSequence& sequence = message_.sequences.back();
    for (; most > 0 && !uncounted_.empty(); --most, ++sequence.count) {
      Result<DocView> document = parse_document(uncounted_);
      if (!document) {
        return std::move(document).error().with_context(
            "document " + std::to_string(sequence.count) + " of sequence " +
            std::string(sequence.name));
      }
      uncounted_ = uncounted_.subspan(document->size());
    }
    return {};
  }

  // A sequence stands for a field of the body, which therefore must not be there as well.
  Result<void> check_names_apart() const {
    if (message_.sequences.empty()) {
      return {};
    }
    for (const Element& element : message_.body) {
      for (const DocSequence& sequence : message_.sequences) {
        if (names_collide(element.name, sequence.name)) {
          return Error(code_body_names_sequence,
                       "Duplicate field between body and document "
                       "sequence " +
                           std::string(sequence.name));
        }
      }
    }
    return {};
  }

  Bytes rest_;
  bool unique_names_;
  bool has_body_ = false;
  Bytes uncounted_;
  OpMsg& message_;
};

namespace {

// The sections of a message whose frame is right.
Result<Bytes> sections_of(Bytes message, bool verify_checksum) {
  if (message.size() < limits::message_header_bytes + flags_bytes ||
      static_cast<std::size_t>(load_le<std::uint32_t>(message.data())) != message.size()) {
    return Error(code_bad_length,
                 "OP_MSG with a wrong length of " + std::to_string(message.size()) + " bytes");
  }
  const std::uint32_t message_flags = peek_flags(message);
  if ((message_flags & required_flags & ~known_flags) != 0) {
    return Error(ErrorCode::illegal_op_msg_flag,
                 "Message contains illegal flags value: " + std::to_string(message_flags));
  }
  Bytes sections = message.subspan(limits::message_header_bytes + flags_bytes);
  if ((message_flags & flags::checksum_present) != 0) {
    if (sections.size() < checksum_bytes) return Error(code_no_room_for_checksum, "OP_MSG too short for its checksum");
    sections = sections.first(sections.size() - checksum_bytes);
    const Bytes covered = message.first(message.size() - checksum_bytes);
    if (verify_checksum &&
        load_le<std::uint32_t>(covered.data() + covered.size()) != crc32c(covered)) {
      return Error(ErrorCode::checksum_mismatch, "OP_MSG checksum does not match contents");
    }
  }
  return sections;
}

Result<void> parse_into(OpMsg& into, Bytes message, bool verify_checksum, bool unique_names) {
  const Result<Bytes> sections = sections_of(message, verify_checksum);
  if (!sections) return sections.error();
  SectionParser parser(*sections, unique_names, peek_flags(message), into);
  for (;;) {
    const Result<bool> stepped = parser.step(SIZE_MAX);
    if (!stepped) return stepped.error();
    if (*stepped) {
      return {};
    }
  }
}

Result<OpMsg> parse(Bytes message, bool verify_checksum, bool unique_names) {
  Result<OpMsg> parsed{OpMsg()};
  if (auto failed = parse_into(*parsed, message, verify_checksum, unique_names); failed.has_error()) {
    parsed = std::move(failed).error();
  }
  return parsed;
}

void append_bytes(std::vector<std::uint8_t>& out, const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::uint8_t*>(from);
  out.insert(out.end(), bytes, bytes + size);
}

}  // namespace

const DocSequence* OpMsg::sequence(std::string_view name) const noexcept {
  const auto found = std::find_if(sequences.begin(), sequences.end(),
                                  [&](const DocSequence& each) { return each.name == name; });
  return found == sequences.end() ? nullptr : &*found;
}

OpMsgParser::OpMsgParser(Bytes whole_message) : message_(whole_message) {}
OpMsgParser::~OpMsgParser() = default;

Result<bool> OpMsgParser::step(std::size_t bytes, std::size_t documents) {
  if (parser_ == nullptr) {
    const bool checked = (peek_flags(message_) & flags::checksum_present) != 0 && message_.size() > checksum_bytes;
    const std::size_t covered = checked ? message_.size() - checksum_bytes : 0;
    if (summed_bytes_ < covered) {
      const Bytes now = message_.subspan(summed_bytes_, std::min(bytes, covered - summed_bytes_));
      sum_ = crc32c(now, sum_);
      summed_bytes_ += now.size();
      return false;
    }
    // A wrong checksum is computed once more, for the error that comes first.
    const bool right = checked && load_le<std::uint32_t>(message_.data() + covered) == sum_;
    const Result<Bytes> sections = sections_of(message_, !right);
    if (!sections) return sections.error();
    parser_ = std::make_unique<SectionParser>(*sections, true, peek_flags(message_), parsed_);
  }
  return parser_->step(documents);
}

Result<void> parse_op_msg(OpMsg& into, Bytes whole_message) { return parse_into(into, whole_message, true, true); }

Result<OpMsg> parse_op_msg(Bytes whole_message, bool verify_checksum) {
  return parse(whole_message, verify_checksum, true);
}

Result<OpMsg> parse_op_msg_reply(Bytes whole_message, bool verify_checksum) {
  return parse(whole_message, verify_checksum, false);
}

bool connection_fatal(const Error& error) noexcept {
  return error.is(ErrorCode::illegal_op_msg_flag) ||
         error.is(ErrorCode::too_many_document_sequences) || error.is(ErrorCode::checksum_mismatch);
}

std::uint32_t peek_flags(Bytes whole_message) noexcept {
  return whole_message.size() < limits::message_header_bytes + flags_bytes
             ? 0
             : load_le<std::uint32_t>(whole_message.data() + limits::message_header_bytes);
}

void begin_op_msg(std::vector<std::uint8_t>& out, std::int32_t request_id, std::int32_t response_to,
                  std::uint32_t message_flags) {
  out.assign(limits::message_header_bytes + flags_bytes, 0);
  write_header(out.data(), {0, request_id, response_to, static_cast<std::int32_t>(OpCode::msg)});
  store_le(out.data() + limits::message_header_bytes, message_flags);
}

void append_body(std::vector<std::uint8_t>& out, DocView body) {
  out.push_back(kind_body);
  append_bytes(out, body.data(), body.size());
}

void finish_op_msg(std::vector<std::uint8_t>& out, bool checksum) {
  const std::size_t total = out.size() + (checksum ? checksum_bytes : 0);
  store_le(out.data(), static_cast<std::int32_t>(total));
  if (checksum) {
    std::uint8_t* flags_at = out.data() + limits::message_header_bytes;
    store_le(flags_at, load_le<std::uint32_t>(flags_at) | flags::checksum_present);
    const std::uint32_t sum = crc32c(out);
    append_bytes(out, &sum, sizeof sum);
  }
}

std::array<std::uint8_t, op_msg_prefix_bytes> op_msg_prefix(std::size_t total_length,
                                                            std::int32_t request_id,
                                                            std::int32_t response_to,
                                                            std::uint32_t message_flags) noexcept {
  std::array<std::uint8_t, op_msg_prefix_bytes> prefix{};
  write_header(prefix.data(), {static_cast<std::int32_t>(total_length), request_id, response_to,
                               static_cast<std::int32_t>(OpCode::msg)});
  store_le(prefix.data() + limits::message_header_bytes, message_flags);
  prefix[op_msg_prefix_bytes - 1] = kind_body;
  return prefix;
}

}  // namespace spillway::wire
