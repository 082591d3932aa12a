// HostName: the name of a shard's host. Copies share one immutable text, so that each operation can carry it without
// the heap. The shared counter is atomic, so copies may be on any thread. If you copy it often, own a text alone: see
// separate().
#pragma once

#include <compare>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace spillway {

class HostName {
 public:
  HostName() noexcept = default;  // empty
  HostName(std::string text)
      : text_(text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text))) {}
  HostName(std::string_view text) : HostName(std::string(text)) {}
  HostName(const char* text) : HostName(std::string(text)) {}

  // Valid as long as any copy lives.
  const std::string& str() const noexcept {
    static const std::string none;
    return text_ ? *text_ : none;
  }
  operator const std::string&() const noexcept { return str(); }
  bool empty() const noexcept { return text_ == nullptr; }

  // The same name with a counter of its own: two workers that copy one name for each operation would take
  // its cache line from each other.
  HostName separate() const { return HostName(str()); }

  friend bool operator==(const HostName& a, const HostName& b) noexcept {
    return a.text_ == b.text_ || a.str() == b.str();
  }
  friend std::strong_ordering operator<=>(const HostName& a, const HostName& b) noexcept {
    return a.str() <=> b.str();
  }

 private:
  std::shared_ptr<const std::string> text_;  // null: empty
};

}  // namespace spillway
