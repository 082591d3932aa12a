#include "proxy/config/yaml_keys.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <optional>
#include <utility>

#include "proxy/auth/key_file.h"
#include "proxy/config/secret_file.h"

namespace spillway {

namespace {

// Enough for two keys with line ends and comments; a file without an end would otherwise be read whole.
constexpr std::size_t key_file_bytes_max = 64UL * 1024;

}  // namespace

Result<std::vector<auth::Secret::Ptr>> read_key_file(const std::string& written) {
  const auto fail = [&](std::string_view why) {
    return Error(ErrorCode::bad_value, fmt::format("{}: {}", written, why));
  };
  const auto file = read_secret_file(written, S_IRWXG | S_IRWXO, key_file_bytes_max + 1);
  if (file.has_error()) return file.error();
  if ((*file)->text().size() > key_file_bytes_max) return fail("is too large for a key file");
  std::vector<auth::Secret::Ptr> keys;
  const auto add = [&](const YAML::Node& node) -> std::optional<Error> {
    if (!node.IsScalar()) return fail("holds something else than a key, or a list of keys");
    auto key = auth::read_cluster_key(node.Scalar());
    if (key.has_error()) return fail(key.error().message);
    keys.push_back(*std::move(key));
    return std::nullopt;
  };
  try {
    const YAML::Node root = YAML::Load(std::string((*file)->text()));
    if (root.IsNull()) return fail("holds no key");
    if (root.IsSequence()) {
      for (const YAML::Node& node : root) {
        if (auto wrong = add(node)) return *std::move(wrong);
      }
    } else if (auto wrong = add(root)) {
      return *std::move(wrong);
    }
  } catch (const YAML::Exception&) {  // its text may hold a part of the key
    return fail("is neither a key nor a YAML list of keys");
  }
  if (keys.empty()) return fail("holds no key");
  if (keys.size() > auth::cluster_keys_max) {
    return fail(fmt::format("holds {} keys; at most {} are possible", keys.size(), auth::cluster_keys_max));
  }
  return keys;
}

}  // namespace spillway
