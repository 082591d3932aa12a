#include "proxy/exec/pipeline/names.h"

#include <algorithm>
#include <iterator>

namespace spillway::pipeline {
namespace {

template <std::size_t n>
bool contains(const std::string_view (&names)[n], std::string_view name) noexcept {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

constexpr std::string_view stages[] = {
    "$addFields", "$bucket", "$bucketAuto", "$changeStream", "$changeStreamSplitLargeEvent",
    "$collStats", "$count", "$currentOp", "$densify", "$documents", "$facet", "$fill", "$geoNear",
    "$graphLookup", "$group", "$indexStats", "$limit", "$listCachedAndActiveUsers",
    "$listLocalSessions", "$listSampledQueries", "$listSearchIndexes", "$listSessions", "$lookup",
    "$match", "$merge", "$operationMetrics", "$out", "$planCacheStats", "$project", "$queryStats",
    "$redact", "$replaceRoot", "$replaceWith", "$sample", "$search", "$searchMeta", "$set",
    "$setWindowFields", "$shardedDataDistribution", "$skip", "$sort", "$sortByCount", "$unionWith",
    "$unset", "$unwind", "$vectorSearch"};

constexpr std::string_view expressions[] = {
    "$abs", "$acos", "$acosh", "$add", "$allElementsTrue", "$and", "$anyElementTrue",
    "$arrayElemAt", "$arrayToObject", "$asin", "$asinh", "$atan", "$atan2", "$atanh", "$avg",
    "$binarySize", "$bitAnd", "$bitNot", "$bitOr", "$bitXor", "$bsonSize", "$ceil", "$cmp",
    "$concat", "$concatArrays", "$cond", "$const", "$convert", "$cos", "$cosh", "$dateAdd",
    "$dateDiff", "$dateFromParts", "$dateFromString", "$dateSubtract", "$dateToParts",
    "$dateToString", "$dateTrunc", "$dayOfMonth", "$dayOfWeek", "$dayOfYear", "$degreesToRadians",
    "$divide", "$eq", "$exp", "$filter", "$first", "$firstN", "$floor", "$function", "$getField",
    "$gt", "$gte", "$hour", "$ifNull", "$in", "$indexOfArray", "$indexOfBytes", "$indexOfCP",
    "$isArray", "$isNumber", "$isoDayOfWeek", "$isoWeek", "$isoWeekYear", "$last", "$lastN", "$let",
    "$literal", "$ln", "$log", "$log10", "$lt", "$lte", "$ltrim", "$map", "$max", "$maxN",
    "$median", "$mergeObjects", "$meta", "$millisecond", "$min", "$minN", "$minute", "$mod",
    "$month", "$multiply", "$ne", "$not", "$objectToArray", "$or", "$percentile", "$pow",
    "$radiansToDegrees", "$rand", "$range", "$reduce", "$regexFind", "$regexFindAll",
    "$regexMatch", "$replaceAll", "$replaceOne", "$reverseArray", "$round", "$rtrim", "$sampleRate",
    "$second", "$setDifference", "$setEquals", "$setField", "$setIntersection", "$setIsSubset",
    "$setUnion", "$sin", "$sinh", "$size", "$slice", "$sortArray", "$split", "$sqrt", "$stdDevPop",
    "$stdDevSamp", "$strcasecmp", "$strLenBytes", "$strLenCP", "$substr", "$substrBytes",
    "$substrCP", "$subtract", "$sum", "$switch", "$tan", "$tanh", "$toBool", "$toDate",
    "$toDecimal", "$toDouble", "$toHashedIndexKey", "$toInt", "$toLong", "$toLower", "$toObjectId",
    "$toString", "$toUpper", "$toUUID", "$trim", "$trunc", "$tsIncrement", "$tsSecond", "$type",
    "$unsetField", "$week", "$year", "$zip"};

constexpr std::string_view accumulators[] = {
    "$accumulator", "$addToSet", "$avg", "$bottom", "$bottomN", "$count", "$first", "$firstN",
    "$last", "$lastN", "$max", "$maxN", "$median", "$mergeObjects", "$min", "$minN", "$percentile",
    "$push", "$stdDevPop", "$stdDevSamp", "$sum", "$top", "$topN", "$concatArrays", "$setUnion"};

constexpr std::string_view query_operators[] = {
    "$where", "$text", "$jsonSchema", "$near", "$nearSphere", "$geoNear", "$geoWithin", "$within",
    "$geoIntersects", "$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear", "$sampleRate",
    "$_internalSchemaType", "$maxDistance", "$minDistance"};

}  // namespace

bool is_known_stage(std::string_view name) noexcept { return contains(stages, name); }
bool is_known_expression(std::string_view name) noexcept { return contains(expressions, name); }
bool is_known_accumulator(std::string_view name) noexcept { return contains(accumulators, name); }
bool is_known_query_operator(std::string_view name) noexcept {
  return contains(query_operators, name);
}

}  // namespace spillway::pipeline
