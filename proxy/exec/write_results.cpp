#include "proxy/exec/write_results.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::exec {

namespace {

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
      const auto code = static_cast<std::int32_t>(number_of(error, "code"));
      add(op, {code, keep_text(without(error, "index"))});
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

std::uint32_t WriteResults::keep_text(BsonDoc text) {
  text_bytes_ += text.size();
  if (text_bytes_ > error_texts_bytes_max) return no_text;
  texts_.push_back(std::move(text));
  return static_cast<std::uint32_t>(texts_.size() - 1);
}

void WriteResults::add(std::uint32_t op, WriteError error) {
  if (error.text == no_text) {
    // Only how they differ is still told.
    const auto [first, end] = errors_.equal_range(op);
    const bool known = std::any_of(
        first, end, [&error](const auto& one) { return one.second.code == error.code; });
    if (known) return;
  }
  errors_.emplace(op, error);
}

void WriteResults::add_errors(std::span<const std::uint32_t> ops, const Error& error) {
  BsonWriter fields;
  fields.append("code", error.code);
  fields.append("errmsg", error.message);
  if (!error.extra.empty()) fields.append_elements(DocView::trusted(error.extra.data()));
  const WriteError kept{error.code, keep_text(std::move(fields).finish())};
  for (const std::uint32_t op : ops) add(op, kept);
}

void WriteResults::add_lost(std::span<const std::uint32_t> ops, const Error& error,
                            std::string_view shard) {
  Error lost = error;
  lost.message =
      fmt::format("Write results unavailable from {} :: caused by :: {}", shard, error.message);
  add_errors(ops, lost);
}

void WriteResults::append_error(BsonWriter& out, Errors::const_iterator first,
                                Errors::const_iterator end, bool brief) const {
  const auto& [op, head] = *first;
  const bool same = std::all_of(
      first, end, [code = head.code](const auto& one) { return one.second.code == code; });
  out.begin_document_item();
  out.append("index", static_cast<std::int32_t>(op));
  if (brief) {
    const auto multiple = static_cast<std::int32_t>(ErrorCode::multiple_errors_occurred);
    out.append("code", same ? head.code : multiple);
    out.append("errmsg", "");
  } else if (same) {
    out.append_elements(texts_[head.text]);
  } else {
    std::string message = "multiple errors for op : ";
    for (auto one = first; one != end; ++one) {
      if (one != first) message += " :: and :: ";
      message += text_of(texts_[one->second.text], "errmsg");
    }
    out.append("code", static_cast<std::int32_t>(ErrorCode::multiple_errors_occurred));
    out.append("errmsg", message);
    out.begin_document("errInfo");
    out.begin_array("causedBy");
    for (auto one = first; one != end; ++one) out.append_item(texts_[one->second.text].view());
    out.end();
    out.end();
  }
  out.end();
}

void WriteResults::append_errors(BsonWriter& out) const {
  if (errors_.empty()) return;
  std::size_t bytes = 0;
  out.begin_array("writeErrors");
  for (auto first = errors_.begin(); first != errors_.end();) {
    const auto end = errors_.upper_bound(first->first);
    bool brief = false;
    for (auto one = first; one != end; ++one) {
      const std::uint32_t text = one->second.text;
      brief = brief || text == no_text;
      if (text != no_text) bytes += texts_[text].size();  // each time that it is told
    }
    append_error(out, first, end, brief || bytes > error_texts_bytes_max);
    first = end;
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
