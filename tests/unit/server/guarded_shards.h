// Two shards that keep documents, for the checks of routing tables.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_gateway.h"

namespace spillway::test {

// The documents of both shards, by shard and "db.collection"; answers what the guards send.
struct Shards {
  using Place = std::pair<std::uint16_t, std::string>;
  std::map<Place, std::vector<BsonDoc>> documents;
  std::size_t writes = 0;
  std::function<void()> before_write;
  std::set<std::uint16_t> unreachable;

  Result<BsonDoc> answer(std::uint16_t shard, DocView command) {
    const Element first = command.first();
    const std::string ns =
        std::string(command["$db"].as_string()) + "." +
        (first.is_string() ? std::string(first.as_string()) : std::string());
    if (unreachable.contains(shard)) return Error(ErrorCode::host_unreachable, "no host answers");
    if (first.name == "listCollections") return list(shard, command["$db"].as_string());
    if (first.name == "listDatabases") return databases(shard);
    if (first.name == "find") {
      const ValueView filter = command["filter"];
      return find(documents[{shard, ns}], filter.is_document() ? filter.as_document() : DocView(), ns);
    }
    if (before_write) std::exchange(before_write, nullptr)();
    ++writes;
    std::vector<BsonDoc>& all = documents[{shard, ns}];
    if (first.name == "insert") {
      const DocView added = command["documents"].as_document().first().as_document();
      for (const BsonDoc& old : all) {
        if (old.view()["_id"] == added["_id"]) {
          return doc("{'n': 0, 'writeErrors': [{'index': 0, 'code': 11000}], 'ok': 1.0}");
        }
      }
      all.emplace_back(added);
      return doc("{'n': 1, 'ok': 1.0}");
    }
    const DocView update = command["updates"].as_document().first().as_document();
    for (BsonDoc& old : all) {
      if (!matches(old, update["q"].as_document())) continue;
      old = BsonDoc(update["u"].as_document());
      return doc("{'n': 1, 'nModified': 1, 'ok': 1.0}");
    }
    return doc("{'n': 0, 'nModified': 0, 'ok': 1.0}");
  }

  BsonDoc databases(std::uint16_t shard) const {
    std::set<std::string> names;
    for (const auto& [place, all] : documents) {
      if (place.first == shard) names.insert(place.second.substr(0, place.second.find('.')));
    }
    BsonWriter reply;
    reply.begin_array("databases");
    for (const std::string& name : names) reply.begin_document_item().append("name", name).end();
    reply.end().append("ok", 1.0);
    return std::move(reply).finish();
  }
  BsonDoc list(std::uint16_t shard, std::string_view db) const {
    const std::string start = std::string(db) + ".";
    BsonWriter reply;
    reply.begin_document("cursor").begin_array("firstBatch");
    for (const auto& [place, all] : documents) {
      if (place.first != shard || !place.second.starts_with(start)) continue;
      reply.begin_document_item().append("name", place.second.substr(start.size())).end();
    }
    reply.end().append("id", std::int64_t{0}).append("ns", start + "$cmd.listCollections").end();
    reply.append("ok", 1.0);
    return std::move(reply).finish();
  }
  static bool matches(DocView document, DocView filter) {
    for (const Element& field : filter) {
      if (!(document[field.name] == static_cast<const ValueView&>(field))) return false;
    }
    return true;
  }
  static BsonDoc find(const std::vector<BsonDoc>& all, DocView filter, const std::string& ns) {
    BsonWriter reply;
    reply.begin_document("cursor").begin_array("firstBatch");
    for (const BsonDoc& document : all) {
      if (matches(document, filter)) reply.append_item(document);
    }
    reply.end().append("id", std::int64_t{0}).append("ns", ns).end();
    reply.append("ok", 1.0);
    return std::move(reply).finish();
  }
};

}  // namespace spillway::test
