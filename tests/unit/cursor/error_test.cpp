#include "cursor/error.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace spillway {
namespace {

TEST_CASE("codes have the server's names", "[error]") {
  const std::vector<std::pair<ErrorCode, std::string>> names = {
      {ErrorCode::ok, "OK"},
      {ErrorCode::internal_error, "InternalError"},
      {ErrorCode::bad_value, "BadValue"},
      {ErrorCode::host_unreachable, "HostUnreachable"},
      {ErrorCode::host_not_found, "HostNotFound"},
      {ErrorCode::failed_to_parse, "FailedToParse"},
      {ErrorCode::unsupported_format, "UnsupportedFormat"},
      {ErrorCode::unauthorized, "Unauthorized"},
      {ErrorCode::type_mismatch, "TypeMismatch"},
      {ErrorCode::overflow, "Overflow"},
      {ErrorCode::invalid_length, "InvalidLength"},
      {ErrorCode::protocol_error, "ProtocolError"},
      {ErrorCode::authentication_failed, "AuthenticationFailed"},
      {ErrorCode::illegal_operation, "IllegalOperation"},
      {ErrorCode::invalid_bson, "InvalidBSON"},
      {ErrorCode::lock_timeout, "LockTimeout"},
      {ErrorCode::namespace_not_found, "NamespaceNotFound"},
      {ErrorCode::index_not_found, "IndexNotFound"},
      {ErrorCode::cursor_not_found, "CursorNotFound"},
      {ErrorCode::namespace_exists, "NamespaceExists"},
      {ErrorCode::max_time_ms_expired, "MaxTimeMSExpired"},
      {ErrorCode::command_not_found, "CommandNotFound"},
      {ErrorCode::shard_key_not_found, "ShardKeyNotFound"},
      {ErrorCode::write_concern_failed, "WriteConcernFailed"},
      {ErrorCode::multiple_errors_occurred, "MultipleErrorsOccurred"},
      {ErrorCode::immutable_field, "ImmutableField"},
      {ErrorCode::cannot_create_index, "CannotCreateIndex"},
      {ErrorCode::shard_not_found, "ShardNotFound"},
      {ErrorCode::invalid_options, "InvalidOptions"},
      {ErrorCode::invalid_namespace, "InvalidNamespace"},
      {ErrorCode::network_timeout, "NetworkTimeout"},
      {ErrorCode::shutdown_in_progress, "ShutdownInProgress"},
      {ErrorCode::operation_failed, "OperationFailed"},
      {ErrorCode::write_conflict, "WriteConflict"},
      {ErrorCode::command_not_supported, "CommandNotSupported"},
      {ErrorCode::conflicting_operation_in_progress, "ConflictingOperationInProgress"},
      {ErrorCode::namespace_not_sharded, "NamespaceNotSharded"},
      {ErrorCode::failed_to_satisfy_read_preference, "FailedToSatisfyReadPreference"},
      {ErrorCode::cursor_in_use, "CursorInUse"},
      {ErrorCode::exceeded_memory_limit, "ExceededMemoryLimit"},
      {ErrorCode::max_staleness_out_of_range, "MaxStalenessOutOfRange"},
      {ErrorCode::client_metadata_missing_field, "ClientMetadataMissingField"},
      {ErrorCode::client_metadata_app_name_too_large, "ClientMetadataAppNameTooLarge"},
      {ErrorCode::client_metadata_document_too_large, "ClientMetadataDocumentTooLarge"},
      {ErrorCode::client_metadata_cannot_be_mutated, "ClientMetadataCannotBeMutated"},
      {ErrorCode::network_interface_exceeded_time_limit, "NetworkInterfaceExceededTimeLimit"},
      {ErrorCode::illegal_op_msg_flag, "IllegalOpMsgFlag"},
      {ErrorCode::transaction_too_old, "TransactionTooOld"},
      {ErrorCode::too_many_document_sequences, "TooManyDocumentSequences"},
      {ErrorCode::cursor_killed, "CursorKilled"},
      {ErrorCode::no_such_transaction, "NoSuchTransaction"},
      {ErrorCode::operation_not_supported_in_transaction, "OperationNotSupportedInTransaction"},
      {ErrorCode::client_disconnect, "ClientDisconnect"},
      {ErrorCode::would_change_owning_shard, "WouldChangeOwningShard"},
      {ErrorCode::checksum_mismatch, "ChecksumMismatch"},
      {ErrorCode::query_exceeded_memory_limit, "QueryExceededMemoryLimitNoDiskUseAllowed"},
      {ErrorCode::api_version_error, "APIVersionError"},
      {ErrorCode::api_strict_error, "APIStrictError"},
      {ErrorCode::api_mismatch_error, "APIMismatchError"},
      {ErrorCode::unsupported_op_query_command, "UnsupportedOpQueryCommand"},
      {ErrorCode::load_balancer_support_mismatch, "LoadBalancerSupportMismatch"},
      {ErrorCode::ingress_request_rate_limit_exceeded, "IngressRequestRateLimitExceeded"},
      {ErrorCode::bson_object_too_large, "BSONObjectTooLarge"},
      {ErrorCode::duplicate_key, "DuplicateKey"},
      {ErrorCode::interrupted_at_shutdown, "InterruptedAtShutdown"},
      {ErrorCode::interrupted, "Interrupted"},
  };
  for (const auto& [code, name] : names) {
    CHECK(error_code_name(static_cast<std::int32_t>(code)) == name);
  }
  CHECK(error_code_name(40) == "ConflictingUpdateOperators");
  CHECK(error_code_name(52) == "DollarPrefixedFieldName");
  CHECK(error_code_name(85) == "IndexOptionsConflict");
  CHECK(error_code_name(86) == "IndexKeySpecsConflict");
  CHECK(error_code_name(121) == "DocumentValidationFailure");
  CHECK(error_code_name(13388) == "StaleConfig");
}

TEST_CASE("codes without a name say their number", "[error]") {
  CHECK(error_code_name(17439) == "Location17439");
  CHECK(error_code_name(4928902) == "Location4928902");
  CHECK(error_code_name(-7) == "Location-7");
}

TEST_CASE("context goes before the message", "[error]") {
  Error error(ErrorCode::bad_value, "inner");
  error.labels = {"RetryableWriteError"};
  const Error outer = std::move(error).with_context("outer");
  CHECK(outer.message == "outer :: caused by :: inner");
  CHECK(outer.is(ErrorCode::bad_value));
  CHECK(outer.labels == std::vector<std::string>{"RetryableWriteError"});
}

}  // namespace
}  // namespace spillway
