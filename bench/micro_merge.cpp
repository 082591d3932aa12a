// How fast documents pass the merge: three sorted streams of 200-byte documents, one core. The
// first case is the merge of order keys alone, the second with keys taken from the documents, the
// third from shards' $sortKey. Then what it takes to move documents of about 1 KB into a batch
// without their $sortKey: walked through element by element, and in one piece.
#include <benchmark/benchmark.h>

#include <array>
#include <string>
#include <vector>

#include "cursor/loser_tree.h"
#include "cursor/sort_pattern.h"
#include "cursor/strip_fields.h"
#include "proxy/canned/documents.h"

namespace {

using spillway::BsonDoc;
using spillway::BsonWriter;
using spillway::DocView;
using spillway::LoserTree;
using spillway::SortPattern;

constexpr std::size_t streams = 3;
constexpr std::size_t documents_per_stream = 20'000;

// The documents of one stream, back to back, as a shard sends them.
struct Stream {
  std::string bytes;
  std::size_t document_bytes = 0;
  DocView at(std::size_t index) const {
    return DocView::trusted(bytes.data() + index * document_bytes);
  }
};

std::array<Stream, streams> make_streams(bool with_sort_key) {
  std::array<Stream, streams> made;
  for (std::size_t stream = 0; stream < streams; ++stream) {
    spillway::bench::DocumentImages::Options options;
    options.doc_bytes = 200;
    options.first_number = static_cast<std::int64_t>(stream);
    options.number_stride = streams;
    options.with_sort_key = with_sort_key;
    spillway::bench::DocumentImages images(options);
    std::size_t local = 0;
    while (local < documents_per_stream) {
      const auto run = images.stamp_bare(static_cast<std::int64_t>(local),
                                         documents_per_stream - local, 1 << 20);
      made[stream].bytes.append(run.bytes, run.elements * run.element_bytes);
      made[stream].document_bytes = run.element_bytes;
      local += run.elements;
    }
  }
  return made;
}

// Merges everything; `key_of(out, stream, index)` appends the key of a document.
template <class KeyOf>
void merge_all(benchmark::State& state, KeyOf&& key_of) {
  struct Head {
    std::string key;
    bool exhausted = false;
  };
  for (auto _ : state) {
    std::array<Head, streams> heads;
    std::array<std::size_t, streams> next{};
    const auto advance = [&](std::size_t stream) {
      Head& head = heads[stream];
      head.exhausted = next[stream] == documents_per_stream;
      head.key.clear();
      if (!head.exhausted) key_of(head.key, stream, next[stream]++);
    };
    const auto order = [&](std::size_t a, std::size_t b) {
      if (heads[a].exhausted || heads[b].exhausted) return heads[a].exhausted - heads[b].exhausted;
      return heads[a].key.compare(heads[b].key);
    };
    for (std::size_t stream = 0; stream < streams; ++stream) advance(stream);
    LoserTree tree;
    std::size_t merged = 0;
    for (tree.build(streams, order); !heads[tree.winner()].exhausted; tree.replay(order)) {
      ++merged;
      advance(tree.winner());
    }
    if (merged != streams * documents_per_stream) state.SkipWithError("documents were lost");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(streams * documents_per_stream));
}

SortPattern by_id() {
  static constexpr std::array<std::uint8_t, 14> sort{14,  0, 0, 0, 0x10, '_', 'i',
                                                     'd', 0, 1, 0, 0,    0,   0};
  return SortPattern::parse(DocView::trusted(sort.data())).value();
}

void merge_of_keys(benchmark::State& state) {
  const auto made = make_streams(false);
  const auto pattern = by_id();
  std::array<std::vector<std::string>, streams> keys;
  for (std::size_t stream = 0; stream < streams; ++stream) {
    for (std::size_t index = 0; index < documents_per_stream; ++index) {
      std::string key;
      if (!pattern.append_key(key, made[stream].at(index))) state.SkipWithError("no key");
      keys[stream].push_back(key);
    }
  }
  merge_all(state, [&](std::string& key, std::size_t stream, std::size_t index) {
    key = keys[stream][index];
  });
}
BENCHMARK(merge_of_keys)->Unit(benchmark::kMillisecond);

void merge_by_documents(benchmark::State& state) {
  const auto made = make_streams(false);
  const auto pattern = by_id();
  merge_all(state, [&](std::string& key, std::size_t stream, std::size_t index) {
    if (!pattern.append_key(key, made[stream].at(index))) state.SkipWithError("no key");
  });
}
BENCHMARK(merge_by_documents)->Unit(benchmark::kMillisecond);

void merge_by_sort_key(benchmark::State& state) {
  const auto made = make_streams(true);
  const auto pattern = by_id();
  merge_all(state, [&](std::string& key, std::size_t stream, std::size_t index) {
    const auto sort_key = made[stream].at(index)["$sortKey"];
    if (!pattern.append_key_from_sort_key(key, sort_key)) state.SkipWithError("no key");
  });
}
BENCHMARK(merge_by_sort_key)->Unit(benchmark::kMillisecond);

// 24 fields of many kinds, as an application's document has them, and the shard's $sortKey.
std::vector<BsonDoc> make_records() {
  std::vector<BsonDoc> records;
  for (std::int64_t i = 0; i < 4'000; ++i) {
    BsonWriter out;
    out.append("_id", i).append("name", std::string(40, 'n')).append_date("created", i);
    for (int field = 0; field < 8; ++field) {
      out.append("count_" + std::to_string(field), field);
      out.append("text_" + std::to_string(field), std::string(60, 't'));
    }
    out.begin_document("address").append("street", "Main").append("city", "Town").append("zip", 1).end();
    out.begin_array("tags").append_item("one").append_item("two").append_item("three").end();
    out.begin_document("owner").append("id", i).append("rights", 7).end();
    out.append("active", true).append("ratio", 0.5).append_null("deleted");
    out.begin_document("$sortKey").append("", i).end();
    records.push_back(std::move(out).finish());
  }
  return records;
}

// `strip(batch, record)` appends a record's bytes without its last field to the batch.
template <class Strip>
void strip_all(benchmark::State& state, Strip&& strip) {
  const auto records = make_records();
  std::string batch;
  std::size_t bytes = 0;
  for (const BsonDoc& record : records) bytes += record.size();
  batch.reserve(bytes);
  for (auto _ : state) {
    batch.clear();
    for (const BsonDoc& record : records) strip(batch, record.view());
    benchmark::DoNotOptimize(batch.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(records.size()));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void append(std::string& batch, const void* bytes, std::size_t size) {
  batch.append(static_cast<const char*>(bytes), size);
}

void strip_sort_key_by_walk(benchmark::State& state) {
  const std::vector<std::string> paths{"$sortKey"};
  strip_all(state, [&](std::string& batch, DocView record) {
    if (record.validate().has_error()) state.SkipWithError("damaged");
    const BsonDoc stripped = spillway::copy_without(record, paths);
    append(batch, stripped.view().data(), stripped.size());
  });
}
BENCHMARK(strip_sort_key_by_walk)->Unit(benchmark::kMicrosecond);

void strip_sort_key_in_one_piece(benchmark::State& state) {
  strip_all(state, [&](std::string& batch, DocView record) {
    const auto elements = spillway::elements_before_last(record, record.find("$sortKey"));
    if (!elements) return state.SkipWithError("not the last");
    const auto size = static_cast<std::uint32_t>(elements->size() + 5);
    append(batch, &size, sizeof size);
    append(batch, elements->data(), elements->size());
    batch.push_back('\0');
  });
}
BENCHMARK(strip_sort_key_in_one_piece)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
