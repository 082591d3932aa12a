#include "proxy/wire/hello.h"

#include <algorithm>
#include <string>
#include <utility>

#include "allocator/limits.h"

namespace spillway::wire {
namespace {

// The cap: a client that waits longer asks again. It also keeps the sum with the clock from overflowing.
constexpr std::int64_t max_await_time_ms_max = 24 * 60 * 60 * 1000;
constexpr std::int32_t code_negative_counter = 51758;
constexpr std::int32_t code_negative_await = 51759;
constexpr std::int32_t code_half_of_a_pair = 51760;
constexpr std::int32_t code_counter_ahead = 51761;
constexpr std::int32_t code_exhaust_without_await = 51763;

Error wrong_type(std::string_view field, BsonType found, std::string_view wanted) {
  std::string text = "Field '";
  text.append(field).append("' is of type ").append(bson_type_name(found));
  text.append(", but should be ").append(wanted);
  return Error(ErrorCode::type_mismatch, std::move(text));
}

// A sub-document of the client metadata, with the string fields that it must have.
Result<void> check_section(DocView client, std::string_view name,
                           std::initializer_list<std::string_view> fields) {
  const Element section = client.find(name);
  if (!section.exists()) {
    return Error(ErrorCode::client_metadata_missing_field, "Missing required sub-document '" +
                                                               std::string(name) +
                                                               "' in the client metadata document");
  }
  if (!section.is_document()) return wrong_type("client." + std::string(name), section.type, "object");
  for (std::string_view field : fields) {
    const Element value = section.as_document().find(field);
    const std::string path = std::string(name) + "." + std::string(field);
    if (!value.exists()) {
      return Error(ErrorCode::client_metadata_missing_field,
                   "Missing required field '" + path + "' in the client metadata document");
    }
    if (!value.is_string()) return wrong_type("client." + path, value.type, "string");
  }
  return {};
}

Result<void> check_application(DocView client) {
  const Element application = client.find("application");
  if (!application.exists()) {
    return {};
  }
  if (!application.is_document()) return wrong_type("client.application", application.type, "object");
  const Element name = application.as_document().find("name");
  if (!name.exists()) {
    return {};
  }
  if (!name.is_string()) return wrong_type("client.application.name", name.type, "string");
  if (name.as_string().size() > limits::application_name_bytes_max) {
    return Error(ErrorCode::client_metadata_app_name_too_large,
                 "The 'application.name' field of the client metadata document must be no more "
                 "than " +
                     std::to_string(limits::application_name_bytes_max) + " bytes, not " +
                     std::to_string(name.as_string().size()));
  }
  return {};
}

Result<TopologyVersion> parse_topology_version(DocView document) {
  const Element process_id = document.find("processId");
  const Element counter = document.find("counter");
  if (process_id.type != BsonType::object_id) {
    return wrong_type("topologyVersion.processId", process_id.type, "objectId");
  }
  const std::optional<std::int64_t> count = counter.to_int64();
  if (!count) return wrong_type("topologyVersion.counter", counter.type, "long");
  if (*count < 0) return Error(code_negative_counter, "topologyVersion must have a non-negative counter");
  return TopologyVersion{process_id.bytes, *count};
}

Result<void> check_compression(const Element& field) {
  if (!field.is_array()) return wrong_type(field.name, field.type, "array");
  DocIterator it = field.as_document().begin();
  for (; !it.done(); ++it) {
    if (!it->is_string()) return wrong_type("compression." + std::string(it->name), it->type, "string");
  }
  if (it.malformed()) return Error(ErrorCode::invalid_bson, "the compression field is not valid BSON");
  return {};
}

Result<void> take_client(HelloRequest& request, const Element& field) {
  if (!field.is_document()) return wrong_type(field.name, field.type, "object");
  const DocView client = field.as_document();
  if (Result<void> checked = check_client_metadata(client); !checked) return checked;
  request.client = client;
  if (const ValueView name = client.find_path("application.name"); name.exists()) {
    request.application_name = name.as_string();
  }
  return {};
}

// One field of the request; names that are not hello's are ignored.
Result<void> take_field(HelloRequest& request, const Element& field) {
  if (field.name == "helloOk") {
    request.hello_ok = field.truthy();
  } else if (field.name == "loadBalanced") {
    request.load_balanced = field.truthy();
  } else if (field.name == "backpressure") {
    request.backpressure = field.truthy();
  } else if (field.name == "internalClient") {
    request.internal_client = true;
  } else if (field.name == "client") {
    return take_client(request, field);
  } else if (field.name == "compression") {
    Result<void> checked = check_compression(field);
    if (checked) request.compression = field.as_document();
    return checked;
  } else if (field.name == "saslSupportedMechs") {
    if (!field.is_string()) return wrong_type(field.name, field.type, "string");
    request.sasl_supported_mechs = field.as_string();
  } else if (field.name == "speculativeAuthenticate") {
    if (!field.is_document()) return wrong_type(field.name, field.type, "object");
    request.speculative_authenticate = field.as_document();
  } else if (field.name == "topologyVersion") {
    if (!field.is_document()) return wrong_type(field.name, field.type, "object");
    Result<TopologyVersion> version = parse_topology_version(field.as_document());
    if (!version) return std::move(version).error();
    request.topology_version = *version;
  } else if (field.name == "maxAwaitTimeMS") {
    request.max_await_time_ms = field.to_int64();
    if (!request.max_await_time_ms) return wrong_type(field.name, field.type, "long");
    request.max_await_time_ms = std::min(*request.max_await_time_ms, max_await_time_ms_max);
  }
  return {};
}

}  // namespace

Result<HelloRequest> parse_hello(DocView command) {
  HelloRequest request;
  DocIterator it = command.begin();
  if (!it.done()) {
    request.is_hello = it->name == "hello";
    ++it;
  }
  for (; !it.done(); ++it) {
    if (Result<void> taken = take_field(request, *it); !taken) return std::move(taken).error();
  }
  if (it.malformed()) return Error(ErrorCode::invalid_bson, "the command is not valid BSON");
  if (request.topology_version.has_value() != request.max_await_time_ms.has_value()) {
    return Error(code_half_of_a_pair, request.topology_version
                                          ? "A request with a 'topologyVersion' must include "
                                            "'maxAwaitTimeMS'"
                                          : "A request with 'maxAwaitTimeMS' must include a "
                                            "'topologyVersion'");
  }
  if (request.max_await_time_ms && *request.max_await_time_ms < 0) {
    return Error(code_negative_await, "maxAwaitTimeMS must be a non-negative integer");
  }
  return request;
}

Result<void> check_client_metadata(DocView client) {
  if (client.size() > limits::client_metadata_bytes_max) {
    return Error(ErrorCode::client_metadata_document_too_large,
                 "The client metadata document must be less than or equal to " +
                     std::to_string(limits::client_metadata_bytes_max) + " bytes, it has " +
                     std::to_string(client.size()));
  }
  if (Result<void> valid = client.validate(limits::bson_depth_max); !valid) {
    return std::move(valid).error().with_context("client metadata");
  }
  if (Result<void> application = check_application(client); !application) return application;
  if (Result<void> driver = check_section(client, "driver", {"name", "version"}); !driver) return driver;
  return check_section(client, "os", {"type"});
}

Result<void> check_metadata_not_repeated(DocView command, bool first_hello) {
  if (!first_hello && command["client"].exists()) {
    return Error(ErrorCode::client_metadata_cannot_be_mutated,
                 "The client metadata document may only be sent in the first hello");
  }
  return {};
}

Result<void> check_load_balanced(const HelloRequest& request, bool through_balancer) {
  if (request.load_balanced == through_balancer) return {};
  return Error(ErrorCode::load_balancer_support_mismatch,
               through_balancer
                   ? "The server is being accessed through a load balancer, but this driver does "
                     "not have load balancing enabled (loadBalanced=true)"
                   : "The driver expects a load balancer, but this port is not the one for load "
                     "balancers (net.loadBalancerPort)");
}

Result<bool> hello_waits(const HelloRequest& request, TopologyVersion current) {
  if (!request.topology_version) return false;
  const TopologyVersion& known = *request.topology_version;
  if (!std::equal(known.process_id.begin(), known.process_id.end(), current.process_id.begin(),
                  current.process_id.end())) {
    return false;
  }
  if (known.counter > current.counter) {
    return Error(code_counter_ahead, "Received a topology version with counter " +
                                         std::to_string(known.counter) +
                                         ", which is greater than the server's counter " +
                                         std::to_string(current.counter));
  }
  return known.counter == current.counter;
}

Result<void> check_exhaust_hello(const HelloRequest& request) {
  if (!request.topology_version || !request.max_await_time_ms) {
    return Error(code_exhaust_without_await,
                 "An exhaust hello must include 'topologyVersion' and 'maxAwaitTimeMS'");
  }
  return {};
}

}  // namespace spillway::wire
