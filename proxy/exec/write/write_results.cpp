#include "proxy/exec/write/write_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "proxy/exec/core/response.h"
#include "proxy/exec/core/stale.h"

namespace spillway::exec {

namespace {

std::int64_t number_of(DocView document, std::string_view field) noexcept {
  return document[field].to_int64().value_or(0);
}

std::string text_of(DocView document, std::string_view field) { return std::string(document[field].to_text()); }

BsonDoc without(DocView document, std::string_view name) {
  return BsonWriter().append_elements(document, [name](std::string_view field) { return field != name; }).finish();
}

}  // namespace

std::int64_t WriteResults::add_reply(std::span<const std::uint32_t> ops, DocView reply,
                                     std::string_view shard) {
  Reading reading(*this, ops, reply, shard);
  while (!reading.step(SIZE_MAX)) {
  }
  return number_of(reply, "n");
}

WriteResults::Reading::Reading(WriteResults& results, std::span<const std::uint32_t> ops, DocView reply,
                               std::string_view shard, std::vector<std::uint32_t>* stale)
    : results_(results),
      ops_(ops),
      reply_(reply),
      shard_(shard),
      stale_(stale),
      executed_most_(static_cast<std::int64_t>(ops.size())) {
  results_.n_ += number_of(reply, "n");
  results_.modified_ += number_of(reply, "nModified");
  upserted_ = reply["upserted"].to_array().begin();
  errors_ = reply["writeErrors"].to_array().begin();
}

// The client's index for a shard's index; nullopt for an index that the shard was not given.
std::optional<std::uint32_t> WriteResults::Reading::client_index(DocView entry) const {
  const auto index = entry["index"].to_int64();
  if (!index || *index < 0 || *index >= static_cast<std::int64_t>(ops_.size())) return std::nullopt;
  return ops_[static_cast<std::size_t>(*index)];
}

bool WriteResults::Reading::step(std::size_t entries) {
  for (; !upserted_.done(); ++upserted_, --entries) {
    if (entries == 0) return false;
    if (!upserted_->is_document()) continue;
    const DocView entry = upserted_->as_document();
    const auto op = client_index(entry);
    if (op) results_.upserted_.insert_or_assign(*op, without(entry, "index"));
  }
  for (; !errors_.done(); ++errors_, --entries) {
    if (entries == 0) return false;
    if (!errors_->is_document()) continue;
    const DocView error = errors_->as_document();
    const std::uint32_t op = client_index(error).value_or(ops_.back());
    const auto code = static_cast<std::int32_t>(number_of(error, "code"));
    if (stale_ != nullptr && is_stale(code)) {
      stale_->push_back(op);
      executed_most_ = results_.ordered_ ? std::min(executed_most_, number_of(error, "index")) : executed_most_ - 1;
      continue;
    }
    // Beyond the limit no text is kept.
    const std::uint32_t text =
        results_.text_bytes_ > error_texts_bytes_max ? no_text : results_.keep_text(without(error, "index"));
    results_.add(op, {code, text});
  }
  // For a time series 6.0 counts inserts that it has refused for the table.
  const std::int64_t told = number_of(reply_, "n");
  if (results_.kind_ == WriteKind::insert && told > executed_most_) {
    results_.n_ -= told - std::max<std::int64_t>(executed_most_, 0);
  }
  if (const ValueView concern = reply_["writeConcernError"];
      concern.is_document() && results_.concern_errors_.size() < concern_errors_max) {
    results_.concern_errors_.push_back({BsonDoc(concern.as_document()), std::string(shard_)});
  }
  for (const Element& id : reply_["retriedStmtIds"].to_array()) {
    if (id.type == BsonType::int32) results_.retried_.push_back(id.as_int32());
  }
  return true;
}

std::uint32_t WriteResults::keep_text(BsonDoc text) {
  text_bytes_ += text.size();
  if (text_bytes_ > error_texts_bytes_max) return no_text;
  texts_.push_back(std::move(text));
  return static_cast<std::uint32_t>(texts_.size() - 1);
}

void WriteResults::add(std::uint32_t op, WriteError error) {
  if (error.text == no_text) {
    // Without texts, errors with equal codes are reported once.
    const auto [first, end] = errors_.equal_range(op);
    const bool known = std::any_of(
        first, end, [&error](const auto& one) { return one.second.code == error.code; });
    if (known) return;
  }
  errors_.emplace(op, error);
}

void WriteResults::add_errors(std::span<const std::uint32_t> ops, const Error& error) {
  Failing(*this, error).add(ops);
}

WriteResults::Failing::Failing(WriteResults& results, const Error& error) : results_(results), code_(error.code) {
  BsonWriter fields;
  fields.append("code", error.code);
  fields.append("errmsg", error.message);
  if (!error.extra.empty()) fields.append_elements(DocView::trusted(error.extra.data()));
  text_ = results_.keep_text(std::move(fields).finish());
}

void WriteResults::Failing::add(std::span<const std::uint32_t> ops) {
  for (const std::uint32_t op : ops) results_.add(op, {code_, text_});
}

void WriteResults::add_lost(std::span<const std::uint32_t> ops, const Error& error,
                            std::string_view shard) {
  add_errors(ops, lost(error, shard));
}

Error WriteResults::lost(const Error& error, std::string_view shard) {
  Error lost = error;
  lost.message =
      fmt::format("Write results unavailable from {} :: caused by :: {}", shard, error.message);
  return lost;
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

void WriteResults::append_concern_error(BsonWriter& out) const {
  if (concern_errors_.empty()) return;
  if (ordered_ && !errors_.empty()) return;
  std::size_t failed = 0;
  for (auto at = errors_.begin(); at != errors_.end(); at = errors_.upper_bound(at->first)) ++failed;
  if (failed > 0 && failed >= operations_) return;
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
  Finishing finishing(*this);
  while (!finishing.step(SIZE_MAX)) {
  }
  return std::move(finishing).take();
}

WriteResults::Finishing::Finishing(const WriteResults& results)
    : results_(results), upserted_(results.upserted_.begin()), error_(results.errors_.begin()) {}

void WriteResults::Finishing::append_head() {
  append_count(out_, "n", results_.n_);
  if (results_.kind_ == WriteKind::update) append_count(out_, "nModified", results_.modified_);
}

// Appends the next operation's errors.
void WriteResults::Finishing::append_error() {
  const auto end = results_.errors_.upper_bound(error_->first);
  bool brief = false;
  for (auto one = error_; one != end; ++one) {
    const std::uint32_t text = one->second.text;
    brief = brief || text == no_text;
    if (text != no_text) text_bytes_ += results_.texts_[text].size();  // each time that it is told
  }
  results_.append_error(out_, error_, end, brief || text_bytes_ > error_texts_bytes_max);
  error_ = end;
}

bool WriteResults::Finishing::step(std::size_t entries) {
  if (!std::exchange(begun_, true)) append_head();
  for (; upserted_ != results_.upserted_.end(); ++upserted_, --entries) {
    if (entries == 0) return false;
    if (upserted_ == results_.upserted_.begin()) out_.begin_array("upserted");
    out_.begin_document_item();
    out_.append("index", static_cast<std::int32_t>(upserted_->first));
    out_.append_elements(upserted_->second);
    out_.end();
    if (std::next(upserted_) == results_.upserted_.end()) out_.end();
  }
  for (; error_ != results_.errors_.end(); --entries) {
    if (entries == 0) return false;
    if (error_ == results_.errors_.begin()) out_.begin_array("writeErrors");
    append_error();
    if (error_ == results_.errors_.end()) out_.end();
  }
  append_tail();
  return true;
}

void WriteResults::Finishing::append_tail() {
  results_.append_concern_error(out_);
  if (!results_.retried_.empty()) {
    std::vector<std::int32_t> ids = results_.retried_;
    std::sort(ids.begin(), ids.end());
    out_.begin_array("retriedStmtIds");
    for (const std::int32_t id : ids) out_.append_item(id);
    out_.end();
  }
  out_.append("ok", 1.0);
}

}  // namespace spillway::exec
