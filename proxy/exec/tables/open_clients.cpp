#include "proxy/exec/tables/open_clients.h"

#include "absl/hash/hash.h"
#include "proxy/base/clock.h"

namespace spillway::exec {

namespace {

// The most sessions that a connection remembers. A pool's connection sees few, again and again.
constexpr std::size_t sessions_max = 256;

// The key of a program's connections, of this user or (empty) without one.
std::uint64_t key_of(std::uint64_t program, std::string_view user) noexcept { return absl::HashOf(program, user); }

std::string_view text_of(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void OpenClients::join(std::uint64_t key) {
  MutexLock lock(mutex_);
  ++counts_[key];
}

void OpenClients::leave(std::uint64_t key) {
  MutexLock lock(mutex_);
  const auto found = counts_.find(key);
  if (--found->second != 0) return;
  counts_.erase(found);
  departures_.fetch_add(1, std::memory_order_release);
}

bool OpenClients::has_client(const ClusterCursor& cursor) const {
  if (!cursor.client) return true;
  MutexLock lock(mutex_);
  if (cursor.client->load_balanced) return counts_.contains(cursor.client->key);
  if (counts_.contains(key_of(cursor.client->key, cursor.owner)) || counts_.contains(key_of(cursor.client->key, {}))) {
    return true;
  }
  return has_session(cursor);
}

bool OpenClients::has_connection(const ClusterCursor& cursor) const {
  if (!cursor.client || cursor.client->connected) return true;
  MutexLock lock(mutex_);
  return has_session(cursor);
}

bool OpenClients::has_session(const ClusterCursor& cursor) const {
  return !cursor.session.lsid.empty() &&
         counts_.contains(ClientPresence::session_key(session_id_of_lsid(cursor.session.lsid)));
}

std::uint64_t ClientPresence::session_key(const SessionId& session) noexcept {
  return absl::HashOf(std::string_view("session"), session);
}

ClientPresence::~ClientPresence() {
  if (all_ == nullptr) return;
  if (facts_) facts_->connected = false;
  for (const std::uint64_t program : programs_) all_->leave(joined_key(program));
  forget_sessions();
}

void ClientPresence::attach(OpenClients& all, std::string_view peer, std::int64_t connection_id,
                            bool load_balanced) {
  all_ = &all;
  address_ = peer.substr(0, peer.rfind(':'));
  connection_id_ = connection_id;
  load_balanced_ = load_balanced;
}

void ClientPresence::identify(std::string_view application, Bytes metadata) {
  if (all_ != nullptr) set_facts(application, metadata);
}

std::shared_ptr<const CursorClient> ClientPresence::facts() {
  if (!facts_ && all_ != nullptr) set_facts({}, {});
  return facts_;
}

std::uint64_t ClientPresence::joined_key(std::uint64_t program) const noexcept {
  return load_balanced_ ? program : key_of(program, user_);
}

void ClientPresence::set_user(std::string_view user) {
  if (all_ == nullptr || user == user_) return;
  absl::InlinedVector<std::uint64_t, 2> left;
  for (const std::uint64_t program : programs_) left.push_back(joined_key(program));
  user_ = user;
  for (const std::uint64_t program : programs_) all_->join(joined_key(program));
  for (const std::uint64_t key : left) all_->leave(key);
  forget_sessions();
  last_session_ = {};
}

void ClientPresence::set_facts(std::string_view application, Bytes metadata) {
  auto facts = std::make_shared<CursorClient>();
  facts->address = address_;
  facts->application = application;
  facts->connection_id = connection_id_;
  facts->load_balanced = load_balanced_;
  // Behind a load balancer only the connection tells programs apart.
  facts->key = load_balanced_ ? absl::HashOf(std::string_view("connection"), connection_id_)
                              : absl::HashOf(text_of(metadata));
  all_->join(joined_key(facts->key));
  programs_.push_back(facts->key);
  facts_ = std::move(facts);
}

void ClientPresence::change_session(const SessionId& session) {
  last_session_ = session;
  if (sessions_.size() >= sessions_max && !sessions_.contains(session)) forget_sessions();
  if (sessions_.insert_or_assign(session, wall_clock_ms()).second) all_->join(session_key(session));
}

void ClientPresence::forget_sessions() {
  for (const auto& [session, used_ms] : sessions_) all_->leave(session_key(session));
  sessions_.clear();
}

}  // namespace spillway::exec
