#include "proxy/auth/impersonation.h"

#include <string>

#include "proxy/auth/concat.h"

namespace spillway::auth {

Digest session_uid(std::string_view db, std::string_view name) {
  const std::string text = db.empty() && name.empty() ? std::string() : concat(name, "@", db);
  return digest(Hash::sha256, bytes_of(text));
}

void append_impersonation(BsonWriter& out, std::string_view db, std::string_view name, std::span<const RoleGrant> roles,
                          std::int32_t wire_version) {
  if (db.empty() && name.empty()) return;
  out.begin_document("$audit");
  if (wire_version >= wire_version_of_one_impersonated_user) {
    out.begin_document("$impersonatedUser").append("user", name).append("db", db).end();
  } else {
    out.begin_array("$impersonatedUsers");
    out.begin_document_item().append("user", name).append("db", db).end();
    out.end();
  }
  out.begin_array("$impersonatedRoles");
  for (const RoleGrant& role : roles) out.begin_document_item().append("role", role.role).append("db", role.db).end();
  out.end().end();
}

}  // namespace spillway::auth
