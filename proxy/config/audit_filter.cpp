#include "proxy/config/audit_filter.h"

#include <utility>

#include "cursor/bson_writer.h"

namespace spillway {

Result<std::unique_ptr<const pipeline::Filter>> make_audit_filter(const std::string& text) {
  if (text.empty()) return std::unique_ptr<const pipeline::Filter>();
  auto document = BsonDoc::from_json(text);
  if (document.has_error()) return document.error();
  auto filter = pipeline::Filter::parse(document->view());
  if (filter.has_error()) return filter.error();
  return std::unique_ptr<const pipeline::Filter>(std::make_unique<const pipeline::Filter>(*std::move(filter)));
}

}  // namespace spillway
