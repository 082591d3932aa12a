#include "proxy/catalog/concern_defaults.h"

#include <algorithm>

namespace spillway::catalog {

namespace {

bool same(const BsonDoc& one, const BsonDoc& other) noexcept {
  const Bytes a = one.view().bytes(), b = other.view().bytes();
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

bool ConcernDefaults::operator==(const ConcernDefaults& other) const noexcept {
  return same(read, other.read) && same(write, other.write);
}

ConcernDefaults read_concern_defaults(DocView document) {
  ConcernDefaults defaults;
  if (const ValueView level = document.find_path("defaultReadConcern.level"); level.is_string()) {
    defaults.read = BsonWriter().append("level", level.as_string()).finish();
  }
  if (const ValueView w = document.find_path("defaultWriteConcern.w");
      w.is_string() || w.is_number() || w.is_document()) {
    BsonWriter out;
    out.append("w", w);
    const ValueView timeout = document.find_path("defaultWriteConcern.wtimeout");
    out.append("wtimeout", timeout.is_number() ? timeout.to_int64().value_or(0) : 0);
    out.append("j", document.find_path("defaultWriteConcern.j"));
    defaults.write = std::move(out).finish();
  }
  return defaults;
}

}  // namespace spillway::catalog
