#include "proxy/pipeline/expressions/names.h"

#include <algorithm>
#include <iterator>

#include "proxy/pipeline/expressions/expression.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

// What the server knows and this library does not evaluate. The rest stands in the tables of what it evaluates.
constexpr std::string_view stages[] = {
    "$_internalUnpackBucket", "$bucket", "$bucketAuto", "$changeStream", "$changeStreamSplitLargeEvent", "$collStats",
    "$currentOp", "$densify", "$documents", "$facet", "$fill", "$geoNear", "$graphLookup", "$indexStats",
    "$listCachedAndActiveUsers", "$listCatalog", "$listClusterCatalog", "$listLocalSessions", "$listSampledQueries",
    "$listSearchIndexes", "$listSessions", "$lookup", "$merge", "$operationMetrics", "$out", "$planCacheStats",
    "$querySettings", "$queryStats", "$rankFusion", "$redact", "$sample", "$scoreFusion", "$search", "$searchMeta",
    "$setWindowFields", "$shardedDataDistribution", "$unionWith", "$vectorSearch"};
constexpr std::string_view expressions[] = {
    "$acos", "$acosh", "$asin", "$asinh", "$atan", "$atan2", "$atanh", "$binarySize", "$bitAnd", "$bitNot", "$bitOr",
    "$bitXor", "$bsonSize", "$convert", "$cos", "$cosh", "$dateAdd", "$dateDiff", "$dateFromParts", "$dateFromString",
    "$dateSubtract", "$dateToParts", "$dateToString", "$dateTrunc", "$degreesToRadians", "$firstN", "$function",
    "$getField", "$indexOfBytes", "$indexOfCP", "$isoDayOfWeek", "$isoWeek", "$isoWeekYear", "$lastN", "$log",
    "$ltrim", "$maxN", "$median", "$meta", "$minN", "$percentile", "$radiansToDegrees", "$rand", "$regexFind",
    "$regexFindAll", "$regexMatch", "$replaceAll", "$replaceOne", "$rtrim", "$sampleRate", "$setField", "$sin",
    "$sinh", "$sortArray", "$stdDevPop", "$stdDevSamp", "$tan", "$tanh", "$toHashedIndexKey", "$toObjectId",
    "$toUUID", "$trim", "$tsIncrement", "$tsSecond", "$unsetField", "$week", "$zip"};
constexpr std::string_view accumulators[] = {
    "$accumulator", "$bottom", "$bottomN", "$firstN", "$lastN", "$maxN", "$median", "$minN", "$percentile",
    "$stdDevPop", "$stdDevSamp", "$top", "$topN", "$concatArrays", "$setUnion"};
constexpr std::string_view query_operators[] = {
    "$where", "$text", "$jsonSchema", "$near", "$nearSphere", "$geoNear", "$geoWithin", "$within", "$geoIntersects",
    "$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear", "$sampleRate", "$_internalSchemaType",
    "$maxDistance", "$minDistance"};

template <std::size_t n>
bool contains(const std::string_view (&names)[n], std::string_view name) noexcept {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

Error no_stage(std::string_view name) {
  if (contains(stages, name)) return unsupported_error("the pipeline stage", name);
  return {40324, join("Unrecognized pipeline stage name: '", name, "'")};
}

Error no_expression(std::string_view name) {
  if (contains(expressions, name)) return unsupported_error("the expression operator", name);
  return {168, join("Unrecognized expression '", name, "'")};
}

Error no_accumulator(std::string_view name) {
  if (contains(accumulators, name)) return unsupported_error("the accumulator", name);
  return {15952, join("unknown group operator '", name, "'")};
}

Error no_query_operator(std::string_view name, std::string_view otherwise) {
  if (contains(query_operators, name)) return unsupported_error("the query operator", name);
  return {ErrorCode::bad_value, join(otherwise, name)};
}

}  // namespace spillway::pipeline
