#include "proxy/shard/stale_error.h"

#include <algorithm>

namespace spillway::shard {

namespace {

StaleKind kind_of(std::int32_t code) noexcept {
  switch (code) {
    case 63:
    case 150:
    case 13388:
      return StaleKind::stale_config;
    case 249:
      return StaleKind::stale_database;
    case 343:
      return StaleKind::cannot_refresh;
    case 227:
      return StaleKind::cannot_implicitly_create;
    case 169:
      return StaleKind::view;
    default:
      return StaleKind::none;
  }
}

void take_details(DocView from, StaleError& error) noexcept {
  const std::string_view name_field = error.kind == StaleKind::stale_database ? "db" : "ns";
  for (const Element& field : from) {
    if (field.name == name_field && field.is_string()) error.ns = field.as_string();
    if (field.name == "vReceived") error.received.version = field;
    if (field.name == "vReceivedEpoch") error.received.epoch = field;
    if (field.name == "vReceivedTimestamp") error.received.timestamp = field;
    if (field.name == "vWanted") error.wanted.version = field;
    if (field.name == "vWantedEpoch") error.wanted.epoch = field;
    if (field.name == "vWantedTimestamp") error.wanted.timestamp = field;
    if (field.name == "resolvedView" && field.type == BsonType::document) error.resolved_view = field;
  }
}

}  // namespace

StaleError classify_error(DocView document) noexcept {
  StaleError error;
  if (const ValueView ok = document["ok"]; ok.exists() && ok.truthy()) return error;
  error.code = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(document["code"].to_int64().value_or(0), 0, INT32_MAX));
  error.kind = kind_of(error.code);
  if (!error.stale()) return error;
  take_details(document, error);
  // Write errors to 5.x have the details one level deeper.
  if (const ValueView info = document["errInfo"]; info.type == BsonType::document) {
    take_details(info.as_document(), error);
  }
  return error;
}

}  // namespace spillway::shard
