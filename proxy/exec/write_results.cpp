#include "proxy/exec/write_results.h"

#include <fmt/format.h>

#include <algorithm>

#include "allocator/limits.h"

namespace spillway::exec {

namespace {

// Once the errors' texts take this much, later ones carry their index and code only, as a server
// does it.
constexpr std::size_t error_texts_bytes_max = limits::mib;

std::int64_t number_of(DocView document, std::string_view field) noexcept {
  return document[field].to_int64().value_or(0);
}

std::string text_of(DocView document, std::string_view field) {
  const ValueView value = document[field];
  return value.is_string() ? std::string(value.as_string()) : std::string();
}

BsonDoc without(DocView document, std::string_view name) {
  BsonWriter out;
  for (const Element& field : document) {
    if (field.name != name) out.append_element(field);
  }
  return std::move(out).finish();
}

// Servers count in int32 as long as it fits.
void append_count(BsonWriter& out, std::string_view name, std::int64_t value) {
  if (value <= INT32_MAX) {
    out.append(name, static_cast<std::int32_t>(value));
  } else {
    out.append(name, value);
  }
}

}  // namespace

std::int64_t WriteResults::add_reply(std::span<const std::uint32_t> ops, DocView reply,
                                     std::string_view shard) {
  const std::int64_t n = number_of(reply, "n");
  n_ += n;
  modified_ += number_of(reply, "nModified");
  // The client's index of a shard's one; a shard that names another operation is not believed.
  const auto client_index = [&](DocView entry) -> std::optional<std::uint32_t> {
    const auto index = entry["index"].to_int64();
    if (!index || *index < 0 || *index >= static_cast<std::int64_t>(ops.size()))
      return std::nullopt;
    return ops[static_cast<std::size_t>(*index)];
  };
  if (const ValueView upserted = reply["upserted"]; upserted.is_array()) {
    for (const Element& entry : upserted.as_document()) {
      if (!entry.is_document()) continue;
      const auto op = client_index(entry.as_document());
      if (op) upserted_.insert_or_assign(*op, without(entry.as_document(), "index"));
    }
  }
  if (const ValueView errors = reply["writeErrors"]; errors.is_array()) {
    for (const Element& entry : errors.as_document()) {
      if (!entry.is_document()) continue;
      const DocView error = entry.as_document();
      const std::uint32_t op = client_index(error).value_or(ops.back());
      errors_[op].push_back({static_cast<std::int32_t>(number_of(error, "code")),
                             text_of(error, "errmsg"), without(error, "index"),
                             std::string(shard)});
    }
  }
  if (const ValueView concern = reply["writeConcernError"]; concern.is_document()) {
    concern_errors_.push_back({BsonDoc(concern.as_document()), std::string(shard)});
  }
  if (const ValueView retried = reply["retriedStmtIds"]; retried.is_array()) {
    for (const Element& id : retried.as_document()) {
      if (id.type == BsonType::int32) retried_.push_back(id.as_int32());
    }
  }
  return n;
}

void WriteResults::add_error(std::uint32_t op, const Error& error) {
  BsonWriter fields;
  fields.append("code", error.code);
  fields.append("errmsg", error.message);
  if (!error.extra.empty()) fields.append_elements(DocView::trusted(error.extra.data()));
  errors_[op].push_back({error.code, error.message, std::move(fields).finish(), {}});
}

void WriteResults::add_lost(std::span<const std::uint32_t> ops, const Error& error,
                            std::string_view shard) {
  Error lost = error;
  lost.message =
      fmt::format("Write results unavailable from {} :: caused by :: {}", shard, error.message);
  for (const std::uint32_t op : ops) add_error(op, lost);
}

void WriteResults::append_error(BsonWriter& out, std::uint32_t op,
                                const std::vector<WriteError>& errors, bool brief) const {
  const WriteError& first = errors.front();
  const bool same = std::all_of(errors.begin(), errors.end(), [&first](const WriteError& error) {
    return error.code == first.code;
  });
  out.begin_document_item();
  out.append("index", static_cast<std::int32_t>(op));
  if (brief) {
    const auto multiple = static_cast<std::int32_t>(ErrorCode::multiple_errors_occurred);
    out.append("code", same ? first.code : multiple);
    out.append("errmsg", "");
  } else if (same) {
    out.append_elements(first.fields);
  } else {
    std::string message = "multiple errors for op : ";
    for (std::size_t i = 0; i < errors.size(); ++i) {
      if (i > 0) message += " :: and :: ";
      message += errors[i].message;
    }
    out.append("code", static_cast<std::int32_t>(ErrorCode::multiple_errors_occurred));
    out.append("errmsg", message);
    out.begin_document("errInfo");
    out.begin_array("causedBy");
    for (const WriteError& error : errors) out.append_item(error.fields.view());
    out.end();
    out.end();
  }
  out.end();
}

void WriteResults::append_errors(BsonWriter& out) const {
  if (errors_.empty()) return;
  std::size_t bytes = 0;
  out.begin_array("writeErrors");
  for (const auto& [op, errors] : errors_) {
    for (const WriteError& error : errors) bytes += error.fields.size();
    append_error(out, op, errors, bytes > error_texts_bytes_max);
  }
  out.end();
}

void WriteResults::append_concern_error(BsonWriter& out) const {
  if (concern_errors_.empty()) return;
  const bool shown = errors_.empty() || (!ordered_ && n_ > 0);
  if (!shown) return;
  out.begin_document("writeConcernError");
  if (concern_errors_.size() == 1) {
    const ConcernError& only = concern_errors_.front();
    for (const Element& field : only.document.view()) {
      if (field.name == "errmsg" && field.is_string()) {
        out.append("errmsg", fmt::format("{} at {}", field.as_string(), only.shard));
      } else {
        out.append_element(field);
      }
    }
  } else {
    std::string message = "multiple errors reported : ";
    for (std::size_t i = 0; i < concern_errors_.size(); ++i) {
      if (i > 0) message += " :: and :: ";
      message += text_of(concern_errors_[i].document, "errmsg") + " at " + concern_errors_[i].shard;
    }
    out.append("code", static_cast<std::int32_t>(ErrorCode::write_concern_failed));
    out.append("codeName",
               error_code_name(static_cast<std::int32_t>(ErrorCode::write_concern_failed)));
    out.append("errmsg", message);
  }
  out.end();
}

BsonDoc WriteResults::finish() const {
  BsonWriter out;
  append_count(out, "n", n_);
  if (kind_ == WriteKind::update) append_count(out, "nModified", modified_);
  if (!upserted_.empty()) {
    out.begin_array("upserted");
    for (const auto& [op, id] : upserted_) {
      out.begin_document_item();
      out.append("index", static_cast<std::int32_t>(op));
      out.append_elements(id);
      out.end();
    }
    out.end();
  }
  append_errors(out);
  append_concern_error(out);
  if (!retried_.empty()) {
    std::vector<std::int32_t> ids = retried_;
    std::sort(ids.begin(), ids.end());
    out.begin_array("retriedStmtIds");
    for (const std::int32_t id : ids) out.append_item(id);
    out.end();
  }
  out.append("ok", 1.0);
  return std::move(out).finish();
}

}  // namespace spillway::exec
