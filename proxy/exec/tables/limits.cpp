#include "proxy/exec/tables/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "proxy/base/log.h"

namespace spillway::exec {

namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();
// A smaller reply is not counted: counting costs more than it saves.
constexpr std::size_t reply_bytes_min = 16 * 1024;

std::size_t index_of(LimitKey key) noexcept { return static_cast<std::size_t>(key); }
std::size_t index_of(LimitOf thing) noexcept { return static_cast<std::size_t>(thing); }

std::int64_t most_of(const std::optional<std::int64_t>& value) noexcept {
  return value && *value != LimitValues::unlimited ? *value : no_limit;
}

BucketPace pace_of(const LimitValues& values) noexcept {
  const std::int64_t rate = most_of(values.operations_per_second);
  if (rate == no_limit) return {};
  return BucketPace::of(static_cast<double>(rate), static_cast<double>(rate));
}

// The override's values take precedence over the section's.
LimitValues over(const LimitValues& section, const LimitValues& named) {
  LimitValues values = section;
  const auto take = [](std::optional<std::int64_t>& into, const std::optional<std::int64_t>& from) {
    if (from) into = from;
  };
  take(values.connections, named.connections);
  take(values.cursors, named.cursors);
  take(values.buffered_bytes, named.buffered_bytes);
  take(values.operations_per_second, named.operations_per_second);
  return values;
}

bool any(const LimitSettings& settings, std::optional<std::int64_t> LimitValues::* value) {
  const auto has = [value](const LimitValues& values) { return most_of(values.*value) != no_limit; };
  return std::any_of(settings.per.begin(), settings.per.end(), has) ||
         std::any_of(settings.overrides.begin(), settings.overrides.end(),
                     [&](const LimitOverride& one) { return has(one.values); });
}

}  // namespace

std::string_view name_of(LimitOf thing) noexcept {
  constexpr std::array<std::string_view, limited_things> names = {"connections", "cursors", "bufferedBytes",
                                                                  "operationsPerSecond"};
  return names[index_of(thing)];
}

bool LimitEntry::try_add(LimitOf thing, std::int64_t change) noexcept {
  std::atomic<std::int64_t>& counter = used[index_of(thing)];
  const std::int64_t limit = most[index_of(thing)].load(std::memory_order_relaxed);
  if (counter.fetch_add(change, std::memory_order_relaxed) + change <= limit) return true;
  counter.fetch_sub(change, std::memory_order_relaxed);
  return false;
}

bool LimitEntry::at_most(LimitOf thing) const noexcept {
  const std::size_t i = index_of(thing);
  return used[i].load(std::memory_order_relaxed) >= most[i].load(std::memory_order_relaxed);
}

// --- handles

LimitHandle::LimitHandle(const LimitHandle& other) : limits_(other.limits_), entry_(other.entry_) {
  if (entry_ != nullptr) limits_->keep(*entry_);
}

LimitHandle::LimitHandle(LimitHandle&& other) noexcept
    : limits_(std::exchange(other.limits_, nullptr)), entry_(std::exchange(other.entry_, nullptr)) {}

LimitHandle& LimitHandle::operator=(LimitHandle other) noexcept {
  std::swap(limits_, other.limits_);
  std::swap(entry_, other.entry_);
  return *this;
}

LimitHandle::~LimitHandle() {
  if (entry_ != nullptr) limits_->release(*entry_);
}

// --- the tables

Limits::~Limits() = default;

std::string Limits::address_name(const IpAddress& address) {
  if (address.is_v4()) return address.to_text();
  IpAddress network = address;
  std::fill(network.bytes.begin() + 8, network.bytes.end(), std::uint8_t{0});
  return network.to_text() + "/64";
}

LimitValues Limits::values_of(LimitKey key, std::string_view name) const {
  const LimitOverride* best = nullptr;
  const auto address = key == LimitKey::address ? IpAddress::parse(name.substr(0, name.find('/'))) : std::nullopt;
  for (const LimitOverride& one : settings_.overrides) {
    if (one.key != key) continue;
    if (key != LimitKey::address && one.name == name) best = &one;
    if (address && one.range.contains(*address) && (best == nullptr || one.range.bits > best->range.bits)) best = &one;
  }
  const LimitValues& section = settings_.per[index_of(key)];
  return best == nullptr ? section : over(section, best->values);
}

void Limits::apply(LimitEntry& entry, const LimitValues& values) noexcept {
  const auto set = [&](LimitOf thing, const std::optional<std::int64_t>& value) {
    entry.most[index_of(thing)].store(most_of(value), std::memory_order_relaxed);
  };
  set(LimitOf::connections, values.connections);
  set(LimitOf::cursors, values.cursors);
  set(LimitOf::buffered_bytes, values.buffered_bytes);
  const BucketPace pace = pace_of(values);
  entry.interval_ns.store(pace.interval_ns, std::memory_order_relaxed);
  entry.slack_ns.store(pace.slack_ns, std::memory_order_relaxed);
}

void Limits::configure(LimitSettings settings) {
  MutexLock lock(mutex_);
  settings_ = std::move(settings);
  for (std::size_t key = 0; key < limit_keys; ++key) {
    for (auto& [name, entry] : tables_[key].entries) apply(*entry, values_of(static_cast<LimitKey>(key), name));
  }
  looks_at_operations_ = any(settings_, &LimitValues::operations_per_second);
  looks_at_bytes_ = any(settings_, &LimitValues::buffered_bytes);
}

LimitHandle Limits::find(LimitKey key, std::string_view name) {
  MutexLock lock(mutex_);
  Table& table = tables_[index_of(key)];
  std::unique_ptr<LimitEntry>& entry = table.entries[std::string(name)];
  if (!entry) {
    entry = std::make_unique<LimitEntry>();
    entry->key = key;
    entry->name = name;
    apply(*entry, values_of(key, name));
  }
  ++entry->handles;
  return {*this, *entry};
}

void Limits::keep(LimitEntry& entry) {
  MutexLock lock(mutex_);
  ++entry.handles;
}

void Limits::release(LimitEntry& entry) {
  const TimePoint now = Clock::now();
  MutexLock lock(mutex_);
  if (--entry.handles > 0) return;
  Table& table = tables_[index_of(entry.key)];
  if (entry.operations.full(now)) {
    table.entries.erase(std::string(entry.name));  // a copy: the entry's own string is destroyed
  } else {
    entry.idle_stamp = ++next_stamp_;
    table.idle.push_back({entry.name, entry.idle_stamp});
  }
  forget_idle(table, now);
}

// A few at a time: each call removes at most two.
void Limits::forget_idle(Table& table, TimePoint now) {
  for (int turn = 0; turn < 2 && !table.idle.empty(); ++turn) {
    const auto found = table.entries.find(table.idle.front().name);
    const bool stale = found == table.entries.end() || found->second->handles > 0 ||
                       found->second->idle_stamp != table.idle.front().stamp;
    if (!stale) {
      if (table.idle.size() <= idle_max_ && !found->second->operations.full(now)) return;
      table.entries.erase(found);
    }
    table.idle.pop_front();
  }
}

Error Limits::refuse(const LimitEntry& entry, LimitOf thing) {
  Refusals& refusals = refusals_[index_of(entry.key)][index_of(thing)];
  refusals.count.add();
  const bool rate = thing == LimitOf::operations;
  const std::int64_t most = rate ? 1'000'000'000 / std::max<std::int64_t>(entry.interval_ns.load(), 1)
                                 : entry.most[index_of(thing)].load();
  const std::string what = fmt::format("the {} '{}' has reached its limit of {} {}", name_of(entry.key), entry.name,
                                       most, name_of(thing));
  if (const auto unwritten = refusals.pace.due(Clock::now())) {
    log::warning("limits.{}.{}: {}; refused, and {} more since the last such line", section_of(entry.key),
                 name_of(thing), what, *unwritten);
  }
  return overloaded(what + "; try again later");
}

LimitUsage Limits::usage(LimitKey key) const {
  LimitUsage usage;
  for (std::size_t i = 0; i < limited_things; ++i) usage.refused[i] = refusals_[index_of(key)][i].count.value();
  MutexLock lock(mutex_);
  usage.tracked = tables_[index_of(key)].entries.size();
  return usage;
}

// --- a connection's keys

const LimitHandle* LimitAccount::try_open_cursor() noexcept {
  for (std::size_t i = 0; i < limit_keys; ++i) {
    if (!handles_[i] || handles_[i]->try_add(LimitOf::cursors, 1)) continue;
    for (std::size_t before = 0; before < i; ++before) {
      if (handles_[before]) handles_[before]->add(LimitOf::cursors, -1);
    }
    return &handles_[i];
  }
  return nullptr;
}

const LimitHandle* LimitAccount::full_of_bytes() const noexcept {
  for (const LimitHandle& handle : handles_) {
    if (handle && handle->at_most(LimitOf::buffered_bytes)) return &handle;
  }
  return nullptr;
}

ClientLimits::~ClientLimits() {
  for (std::size_t i = 0; i < limit_keys; ++i) leave(static_cast<LimitKey>(i));
}

std::optional<Error> ClientLimits::enter(Limits& limits, LimitKey key, std::string_view name) {
  limits_ = &limits;
  LimitHandle& handle = handles_[index_of(key)];
  if (handle && handle->name == name) return std::nullopt;
  LimitHandle found = limits.find(key, name);
  if (!found->try_add(LimitOf::connections, 1)) {
    return limits.refuse(*found.get(), LimitOf::connections);
  }
  leave(key);
  handle = std::move(found);
  return std::nullopt;
}

void ClientLimits::leave(LimitKey key) {
  account_.reset();
  LimitHandle& handle = handles_[index_of(key)];
  if (!handle) return;
  handle->add(LimitOf::connections, -1);
  handle = LimitHandle();
}

std::optional<Error> ClientLimits::admit(TimePoint now, bool opens_cursor) {
  if (opens_cursor && limits_->looks_at_bytes()) {
    for (const LimitHandle& handle : handles_) {
      if (handle && handle->at_most(LimitOf::buffered_bytes))
        return limits_->refuse(*handle.get(), LimitOf::buffered_bytes);
    }
  }
  std::array<BucketPace, limit_keys> paces;
  for (std::size_t i = 0; i < limit_keys; ++i) {
    if (!handles_[i]) continue;
    paces[i] = handles_[i]->pace();
    if (handles_[i]->operations.try_take(now, paces[i])) continue;
    for (std::size_t before = 0; before < i; ++before) {
      if (handles_[before] && paces[before].limits()) handles_[before]->operations.give_back(paces[before]);
    }
    return limits_->refuse(*handles_[i].get(), LimitOf::operations);
  }
  return std::nullopt;
}

const std::shared_ptr<LimitAccount>& ClientLimits::account() {
  if (!account_ && limits_ != nullptr) account_ = std::make_shared<LimitAccount>(handles_);
  return account_;
}

HeldReply::HeldReply(ClientLimits& client, std::size_t bytes) {
  if (bytes < reply_bytes_min || client.limits() == nullptr || !client.limits()->looks_at_bytes()) return;
  account_ = client.account();
  bytes_ = static_cast<std::int64_t>(bytes);
  account_->add_bytes(bytes_);
}

HeldReply::~HeldReply() {
  if (account_) account_->add_bytes(-bytes_);
}

bool may_open_cursor(const LimitAccount* account) noexcept {
  if (account == nullptr) return true;
  for (const LimitHandle& handle : account->handles()) {
    if (handle && handle->at_most(LimitOf::cursors)) return false;
  }
  return true;
}

std::optional<Error> charge_cursor(CursorCharge& charge) {
  auto* const account = static_cast<LimitAccount*>(charge.account());
  if (account == nullptr || charge.is_taken()) return std::nullopt;
  if (const LimitHandle* const full = account->try_open_cursor()) {
    return full->limits()->refuse(*full->get(), LimitOf::cursors);
  }
  charge.taken();
  return std::nullopt;
}

}  // namespace spillway::exec
