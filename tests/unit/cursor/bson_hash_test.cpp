// Hashes that MongoDB computes, value by value.
#include "cursor/bson_hash.h"

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/cursor/bson_text.h"

namespace spillway {
namespace {

using test::Value;

std::int64_t hash_of(const std::string& text) { return bson_hash64(Value(text)); }

BsonDoc one_double(double value) {
  BsonWriter writer;
  writer.append("v", value);
  return std::move(writer).finish();
}
std::int64_t hash_of(double value) {
  const BsonDoc doc = one_double(value);
  return bson_hash64(doc.view().first());
}

TEST_CASE("numbers hash as integers", "[hash]") {
  for (const char* text : {"42", R"({"$numberLong":"42"})", R"({"$numberDouble":"42.123"})",
                           R"({"$numberDecimal":"42"})", R"({"$numberDecimal":"4.2E1"})"}) {
    CHECK(hash_of(text) == -944302157085130861);
  }
  for (const char* text :
       {"0", "0.456", "-0.0", R"({"$numberDouble":"NaN"})", R"({"$numberDecimal":"NaN"})",
        R"({"$numberDecimal":"0.5"})", R"({"$numberDecimal":"-0.3"})"}) {
    CHECK(hash_of(text) == 4854801880128277513);
  }
  CHECK(hash_of("1") == 5902408780260971510);
  CHECK(hash_of("-1") == 1140205862565771219);
  CHECK(hash_of("2") == 848411777775835583);
  CHECK(hash_of("3") == -1529429926180645992);
  CHECK(hash_of("4") == 2433984061343616404);
  CHECK(hash_of("5") == 4470791281878691347);
  CHECK(hash_of("6") == -6504342592125989714);
  CHECK(hash_of("7") == 9174449368162552349);
  CHECK(hash_of("8") == -6200100076853976706);
  CHECK(hash_of("9") == 6497670140411665948);
  CHECK(hash_of("10") == 7766103514953448109);
  CHECK(hash_of("-2147483648") == 6165898260261354870);
  CHECK(hash_of("2147483647") == 1143184177162245883);
}

TEST_CASE("doubles are truncated, decimals rounded half to even", "[hash]") {
  CHECK(hash_of("2.7") == 848411777775835583);
  CHECK(hash_of(R"({"$numberDecimal":"2.7"})") == -1529429926180645992);
  CHECK(hash_of(R"({"$numberDecimal":"2.5"})") == 848411777775835583);
  CHECK(hash_of(R"({"$numberDecimal":"3.5"})") == 2433984061343616404);
  CHECK(hash_of(R"({"$numberDecimal":"-1.4"})") == 1140205862565771219);
}

TEST_CASE("numbers beyond the integers saturate", "[hash]") {
  constexpr std::int64_t highest = 921523596458303250;
  constexpr std::int64_t lowest = 4532067210535695462;
  CHECK(hash_of(R"({"$numberLong":"9223372036854775807"})") == highest);
  CHECK(hash_of(std::numeric_limits<double>::max()) == highest);
  CHECK(hash_of(std::numeric_limits<double>::infinity()) == highest);
  CHECK(hash_of(R"({"$numberLong":"-9223372036854775808"})") == lowest);
  CHECK(hash_of(9223372036854775808.0) == lowest);
  CHECK(hash_of(-std::numeric_limits<double>::max()) == lowest);
  CHECK(hash_of(-std::numeric_limits<double>::infinity()) == lowest);
  CHECK(hash_of(R"({"$numberDecimal":"9223372036854775808"})") == highest);
  CHECK(hash_of(R"({"$numberDecimal":"1E6144"})") == highest);
  CHECK(hash_of(R"({"$numberDecimal":"Infinity"})") == highest);
  CHECK(hash_of(R"({"$numberDecimal":"-9223372036854775809"})") == lowest);
  CHECK(hash_of(R"({"$numberDecimal":"-Infinity"})") == lowest);
}

TEST_CASE("other types hash by their bytes", "[hash]") {
  CHECK(hash_of(R"({"$minKey":1})") == 7961148599568647290);
  CHECK(hash_of(R"({"$maxKey":1})") == 5504842513779440750);
  CHECK(hash_of(R"({"$undefined":true})") == 40158834000849533);
  CHECK(hash_of("null") == 2338878944348059895);
  CHECK(bson_hash64(ValueView{}) == 2338878944348059895);  // missing
  CHECK(hash_of(R"("")") == 2049396243249673340);
  CHECK(hash_of(R"("a")") == 2780795045148116090);
  CHECK(hash_of(R"("abc")") == 8478485326885698097);
  CHECK(hash_of(R"({"$symbol":"abc"})") == 8478485326885698097);
  CHECK(hash_of(R"("hello")") == 5347277839332858538);
  CHECK(hash_of(R"("user1")") == 801843209332933044);
  CHECK(hash_of(R"({"$binary":{"base64":"AAECAwQG","subType":"00"}})") == 7252465090394235301);
  CHECK(hash_of(R"({"$binary":{"base64":"AAECAwQG","subType":"80"}})") == 5736670452907618262);
  CHECK(hash_of(R"({"$uuid":"00010203-0405-0607-0809-0a0b0c0d0e0f"})") == 6084661258071355978);
  CHECK(hash_of(R"({"$oid":"010203040506070809101112"})") == -5588663249627035708);
  CHECK(hash_of(R"({"$oid":"000000000000000000000000"})") == -4293118519463489418);
  CHECK(hash_of("true") == 6405873908747105701);
  CHECK(hash_of("false") == 6289544573401934092);
  CHECK(hash_of(R"({"$date":{"$numberLong":")" + std::to_string(0x5566778811223344) + R"("}})") ==
        4476222765095560467);
  CHECK(hash_of(R"({"$date":{"$numberLong":"0"}})") == -1178696894582842035);
  CHECK(hash_of(R"({"$timestamp":{"t":0,"i":0}})") == -7867208682377458672);
  CHECK(hash_of(R"({"$timestamp":{"t":1432778632,"i":287454020}})") == 4873046866288452390);
  CHECK(hash_of(R"({"$regularExpression":{"pattern":"mongodb","options":""}})") ==
        -7275792090268217043);
  CHECK(hash_of(R"({"$regularExpression":{"pattern":".*","options":"i"}})") == 7095855029187981886);
  CHECK(hash_of(R"({"$dbPointer":{"$ref":"c","$id":{"$oid":"010203040506070809101112"}}})") ==
        940175826736461384);
  CHECK(hash_of(R"({"$code":"func f() { return 1; }"})") == 6861638109178014270);
  CHECK(hash_of(R"({"$code":"func f() { return 1; }","$scope":{"c":true}})") == 501342939894575968);
}

TEST_CASE("documents and arrays hash recursively", "[hash]") {
  CHECK(hash_of("{}") == 7980500913326740417);
  CHECK(hash_of(R"({"a":"abc","b":{"$numberLong":"123"}})") == 4771603801758380216);
  CHECK(hash_of(R"({"a":"abc","b":123})") == 4771603801758380216);
  CHECK(hash_of("[]") == 8849948234993459283);
  CHECK(hash_of(R"(["bar","baz","qux"])") == -2938911267422831539);
}

TEST_CASE("the seed takes part", "[hash]") {
  CHECK(bson_hash64(Value("42"), 40513) == 4302929669663179197);
}

TEST_CASE("values larger than the staging buffer hash as a whole", "[hash]") {
  // The same stream, cut differently: a long string, and the long string behind a small field.
  const std::string text(1000, 'x');
  CHECK(hash_of('"' + text + '"') != hash_of('"' + text + "x\""));
  CHECK(hash_of(R"({"a":1,"b":")" + text + "\"}") != hash_of(R"({"a":2,"b":")" + text + "\"}"));
  CHECK(hash_of(R"({"a":1,"b":")" + text + R"(","c":1})") !=
        hash_of(R"({"a":1,"b":")" + text + R"(","c":2})"));
}

TEST_CASE("many values hash as each alone", "[hash]") {
  std::vector<Value> values;
  for (const char* text :
       {"42", "-7", "1.5", "{\"$numberLong\":\"-9223372036854775808\"}", "{\"$numberDecimal\":\"1e3\"}", "true", "null",
        "{\"$minKey\":1}", "{\"$maxKey\":1}", "{\"$oid\":\"010203040506070809101112\"}", "{}", "[]", "[1,2]",
        R"({"a":"abc","b":123})", R"({"$code":"f","$scope":{"c":true}})", R"({"$date":{"$numberLong":"4"}})",
        R"({"$binary":{"base64":"AAAA","subType":"04"}})", R"({"$timestamp":{"t":7,"i":8}})"}) {
    values.emplace_back(text);
  }
  // Around the length at which one block is full.
  for (std::size_t size = 0; size < 80; ++size) values.emplace_back('"' + std::string(size, 'x') + '"');
  for (int i = 0; i < 40; ++i) values.emplace_back(std::to_string(i));
  // Groups of each size, so that lanes stay empty.
  for (std::size_t first = 0; first < values.size(); ++first) {
    const std::size_t count = std::min(values.size() - first, first % 37 + 1);
    std::vector<ValueView> views(values.begin() + static_cast<std::ptrdiff_t>(first),
                                 values.begin() + static_cast<std::ptrdiff_t>(first + count));
    views.push_back({});  // missing
    std::vector<std::int64_t> hashes(views.size());
    bson_hash64(views, hashes);
    for (std::size_t i = 0; i < views.size(); ++i) {
      INFO("value " << first + i << " of a group of " << views.size());
      CHECK(hashes[i] == bson_hash64(views[i]));
    }
  }
}

TEST_CASE("threads hash independently", "[hash]") {
  const Value value("42");
  std::int64_t other = 0;
  std::thread thread([&] { other = bson_hash64(value); });
  thread.join();
  CHECK(other == bson_hash64(value));
}

}  // namespace
}  // namespace spillway
