// hello and isMaster, as far as the request alone decides: fields and their checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "cursor/bson_view.h"

namespace spillway::wire {

struct TopologyVersion {
  Bytes process_id;  // 12 bytes
  std::int64_t counter = 0;
};

// Views into the request's bytes.
struct HelloRequest {
  bool is_hello = false;  // `hello`, which is answered isWritablePrimary; else isMaster: ismaster
  bool hello_ok = false;
  std::optional<DocView> client;                         // the metadata document, checked
  std::string_view application_name;                     // client.application.name
  std::optional<DocView> compression;                    // an array of strings: see negotiate()
  std::optional<std::string_view> sasl_supported_mechs;  // "<db>.<user>"
  std::optional<DocView> speculative_authenticate;
  std::optional<TopologyVersion> topology_version;
  std::optional<std::int64_t> max_await_time_ms;  // present exactly when topology_version is; a day at most
  bool load_balanced = false;
  bool backpressure = false;  // the driver retries requests refused with SystemOverloadedError
  bool internal_client = false;  // internalClient is there
};

// REQUIRES: the top level of `command` is well-formed (parse_op_msg, parse_op_query ensure it). Errors: 183 metadata
// lacks a field, 184 application name too long, 185 metadata too large, 51758 negative counter, 51759 negative
// maxAwaitTimeMS, 51760 only one of the pair, TypeMismatch.
Result<HelloRequest> parse_hello(DocView command);

// May be called alone for a metadata document from elsewhere. Errors: 183, 184, 185, TypeMismatch.
Result<void> check_client_metadata(DocView client);

// 186 when `client` comes again after the connection's first hello, whatever it is.
Result<void> check_metadata_not_repeated(DocView command, bool first_hello);

// LoadBalancerSupportMismatch(354): a connection's first hello must say loadBalanced exactly if it came through the
// port for load balancers.
Result<void> check_load_balanced(const HelloRequest& request, bool through_balancer);

// Must the answer wait for a change (up to maxAwaitTimeMS)? Compares with this process's version;
// 51761 when the client's counter is ahead of it.
Result<bool> hello_waits(const HelloRequest& request, TopologyVersion current);

// 51763 when exhaust is asked for without topologyVersion and maxAwaitTimeMS.
Result<void> check_exhaust_hello(const HelloRequest& request);

}  // namespace spillway::wire
