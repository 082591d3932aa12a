// The account that an open cursor and its memory count in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace spillway {

// Implemented by the exec layer. Thread-safe; never blocks, never allocates.
class CursorAccount {
 public:
  virtual ~CursorAccount() = default;
  virtual void add_cursors(std::int64_t change) noexcept = 0;
  virtual void add_bytes(std::int64_t change) noexcept = 0;
};

// What a cursor has added to its account; its destructor takes it back. Used by the holder of the
// cursor, or under the lock of its stripe.
class CursorCharge {
 public:
  CursorCharge() = default;
  CursorCharge(const CursorCharge&) = delete;
  CursorCharge& operator=(const CursorCharge&) = delete;
  ~CursorCharge() { leave(); }

  void assign(std::shared_ptr<CursorAccount> account) noexcept {
    leave();
    account_ = std::move(account);
  }
  // Counts one open cursor.
  void take() noexcept {
    if (!account_ || std::exchange(taken_, true)) return;
    account_->add_cursors(1);
  }
  // For a cursor that the account has counted already.
  void taken() noexcept { taken_ = account_ != nullptr; }
  bool is_taken() const noexcept { return taken_; }
  // Sets the bytes that the cursor holds.
  void hold(std::size_t bytes) noexcept {
    if (!account_ || bytes == bytes_) return;
    account_->add_bytes(static_cast<std::int64_t>(bytes) - static_cast<std::int64_t>(bytes_));
    bytes_ = bytes;
  }
  CursorAccount* account() const noexcept { return account_.get(); }
  const std::shared_ptr<CursorAccount>& shared_account() const noexcept { return account_; }

 private:
  void leave() noexcept {
    if (!account_) return;
    hold(0);
    if (std::exchange(taken_, false)) account_->add_cursors(-1);
    account_.reset();
  }

  std::shared_ptr<CursorAccount> account_;
  std::size_t bytes_ = 0;
  bool taken_ = false;
};

}  // namespace spillway
