// How fast documents pass the merge of a cursor's shards, one core: three streams of 200-byte documents, in turn;
// sorted, with keys taken from the documents; sorted by the shards' $sortKey, which is cut off. Then what it takes to
// move documents of about 1 KB into a batch without their $sortKey: element by element, and in one piece.
#include <benchmark/benchmark.h>

#include <array>
#include <string>
#include <vector>

#include "cursor/merge.h"
#include "cursor/strip_fields.h"
#include "proxy/canned/documents.h"

namespace {

using spillway::Batch;
using spillway::BsonDoc;
using spillway::BsonWriter;
using spillway::Buffer;
using spillway::DocView;
using spillway::Merge;
using spillway::MergeState;
using spillway::RemoteCursor;
using spillway::SortKeySource;
using spillway::SortPattern;

constexpr std::size_t streams = 3;
constexpr std::size_t documents_per_stream = 20'000;

// The documents of each stream as the elements of a batch array, as a shard sends them.
std::array<std::string, streams> make_streams(bool with_sort_key) {
  std::array<std::string, streams> made;
  for (std::size_t stream = 0; stream < streams; ++stream) {
    spillway::bench::DocumentImages::Options options;
    options.doc_bytes = 200;
    options.first_number = static_cast<std::int64_t>(stream);
    options.number_stride = streams;
    if (with_sort_key) options.sort_key = spillway::bench::DocumentImages::SortKey::array;
    spillway::bench::DocumentImages images(options);
    for (std::size_t local = 0; local < documents_per_stream;) {
      const auto run = images.stamp_bare(static_cast<std::int64_t>(local), documents_per_stream - local, 1 << 20);
      for (std::size_t i = 0; i < run.elements; ++i) {
        made[stream].append("\x03" "0", 3).append(run.bytes + i * run.element_bytes, run.element_bytes);
      }
      local += run.elements;
    }
  }
  return made;
}

// Merges everything, as a batch is filled.
void merge_all(benchmark::State& state, MergeState how, bool with_sort_key) {
  const auto made = make_streams(with_sort_key);
  spillway::MemoryBudget budget("merge", 0);
  for (auto _ : state) {
    state.PauseTiming();
    std::vector<RemoteCursor> remotes(streams);
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const std::string& bytes = made[stream];
      Buffer buffer = *Buffer::allocate(budget, bytes.size());
      buffer.append(bytes.data(), bytes.size());
      remotes[stream].batches.emplace_back(std::move(buffer), 0, bytes.size());
    }
    state.ResumeTiming();
    std::size_t merged = 0;
    Merge merge(remotes, how, budget);
    for (;; ++merged) {
      const auto next = merge.next();
      if (!next || next->kind != Merge::Next::Kind::document) break;
      auto elements = merge.elements();
      benchmark::DoNotOptimize(elements);
      merge.take();
    }
    if (merged != streams * documents_per_stream) state.SkipWithError("documents were lost");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(streams * documents_per_stream));
}

MergeState by_id(SortKeySource keys) {
  static constexpr std::array<std::uint8_t, 14> sort{14,  0, 0, 0, 0x10, '_', 'i',
                                                     'd', 0, 1, 0, 0,    0,   0};
  MergeState state;
  state.sort = SortPattern::parse(DocView::trusted(sort.data())).value();
  state.sort_keys = keys;
  if (keys == SortKeySource::sort_key_field) state.strip_fields = {"$sortKey"};
  return state;
}

void merge_in_turn(benchmark::State& state) { merge_all(state, {}, false); }
BENCHMARK(merge_in_turn)->Unit(benchmark::kMillisecond);

void merge_by_documents(benchmark::State& state) { merge_all(state, by_id(SortKeySource::document), false); }
BENCHMARK(merge_by_documents)->Unit(benchmark::kMillisecond);

void merge_by_sort_key(benchmark::State& state) { merge_all(state, by_id(SortKeySource::sort_key_field), true); }
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
