// Errors that a client can see, and Result<T>. Every code the proxy raises itself is named here;
// codes that come from a shard are carried as numbers. The names are those of the server's error table.
#pragma once

#include <boost/system/result.hpp>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway {

enum class ErrorCode : std::int32_t {
  ok = 0,
  internal_error = 1,
  bad_value = 2,
  host_unreachable = 6,
  host_not_found = 7,
  failed_to_parse = 9,
  unsupported_format = 12,
  unauthorized = 13,
  type_mismatch = 14,
  overflow = 15,
  invalid_length = 16,
  protocol_error = 17,
  authentication_failed = 18,
  illegal_operation = 20,
  invalid_bson = 22,
  lock_timeout = 24,
  namespace_not_found = 26,
  index_not_found = 27,
  cursor_not_found = 43,
  namespace_exists = 48,
  max_time_ms_expired = 50,
  command_not_found = 59,
  shard_key_not_found = 61,
  write_concern_failed = 64,
  multiple_errors_occurred = 65,
  immutable_field = 66,
  cannot_create_index = 67,
  shard_not_found = 70,
  invalid_options = 72,
  invalid_namespace = 73,
  network_timeout = 89,
  shutdown_in_progress = 91,
  operation_failed = 96,
  write_conflict = 112,
  command_not_supported = 115,
  conflicting_operation_in_progress = 117,
  namespace_not_sharded = 118,
  failed_to_satisfy_read_preference = 133,
  invalid_ssl_configuration = 140,
  ssl_handshake_failed = 141,
  cursor_in_use = 143,
  exceeded_memory_limit = 146,
  max_staleness_out_of_range = 160,
  client_metadata_missing_field = 183,
  client_metadata_app_name_too_large = 184,
  client_metadata_document_too_large = 185,
  client_metadata_cannot_be_mutated = 186,
  network_interface_exceeded_time_limit = 202,
  illegal_op_msg_flag = 223,
  transaction_too_old = 225,
  too_many_document_sequences = 233,
  cursor_killed = 237,
  no_such_transaction = 251,
  too_many_files_open = 264,
  operation_not_supported_in_transaction = 263,
  client_disconnect = 279,
  would_change_owning_shard = 283,
  checksum_mismatch = 288,
  query_exceeded_memory_limit = 292,
  api_version_error = 322,
  api_strict_error = 323,
  api_mismatch_error = 347,
  unsupported_op_query_command = 352,
  load_balancer_support_mismatch = 354,
  ingress_request_rate_limit_exceeded = 462,
  bson_object_too_large = 10334,
  duplicate_key = 11000,
  interrupted_at_shutdown = 11600,
  interrupted = 11601,
  search_not_enabled = 31082,
};

// The codeName of a reply: "HostUnreachable" for 6; "Location<n>" for codes without a name.
std::string error_code_name(std::int32_t code);

// A failure on its way to a client. `code` is any MongoDB code, named above or not.
struct Error {
  std::int32_t code = 1;
  std::string message;
  std::vector<std::string> labels;  // errorLabels, in order
  // Extra top-level fields of the reply (keyPattern, keyValue, errInfo…): a whole BSON document,
  // or empty. Its elements are appended to the error reply.
  std::string extra;

  Error() = default;
  Error(ErrorCode c, std::string text) : code(static_cast<std::int32_t>(c)), message(std::move(text)) {}
  Error(std::int32_t c, std::string text) : code(c), message(std::move(text)) {}

  bool is(ErrorCode c) const noexcept { return code == static_cast<std::int32_t>(c); }
  // "<context> :: caused by :: <message>", as the server words nested errors.
  Error with_context(std::string_view context) &&;
};

// For want of memory or under a limit: with the labels that make a driver try again.
inline Error overloaded(std::string text) {
  Error error(ErrorCode::ingress_request_rate_limit_exceeded, std::move(text));
  error.labels = {"SystemOverloadedError", "RetryableError"};
  return error;
}
// Of an operation's maxTimeMS.
inline Error time_limit_exceeded() { return {ErrorCode::max_time_ms_expired, "operation exceeded time limit"}; }

template <class T>
using Result = boost::system::result<T, Error>;

// Makes `name` the Result of the expression; if that is an error, the function returns it.
// NOLINTBEGIN(cppcoreguidelines-macro-usage): 370 times the same two lines would hide what is computed
#define SPILLWAY_TRY(name, ...) \
  auto name = __VA_ARGS__;      \
  if (name.has_error()) return std::move(name).error()
// The same in a coroutine.
#define SPILLWAY_CO_TRY(name, ...) \
  auto name = __VA_ARGS__;         \
  if (name.has_error()) co_return std::move(name).error()
// NOLINTEND(cppcoreguidelines-macro-usage)

// Called by Result::value() on an error: a programmer's mistake on the data plane, an ordinary
// exception while starting. (Found by argument-dependent lookup.)
[[noreturn]] inline void throw_exception_from_error(const Error& error, const boost::source_location&) {
  throw std::runtime_error(error.message);
}

}  // namespace spillway
