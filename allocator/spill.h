// SpillStore: bytes that are not needed now, compressed, and in a file if there is one.
//
//   park(buffer)  ->  SpillTicket  ->  fetch(), piece by piece, the same bytes again
//
// One thread of its own compresses, writes and reads; callers never wait for the disk. A failure on the way out
// leaves the bytes in memory: nothing is lost. A failure on the way back is reported, once.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "allocator/block_codec.h"
#include "allocator/buffer.h"
#include "allocator/spill_extents.h"
#include "allocator/spill_file.h"

namespace spillway {

class SpillStore;
namespace detail {
struct SpillItem;
struct SpillPiece;
}  // namespace detail

// Where parked bytes may be cut: of `rest`, how many belong to the next piece, about `wanted` of
// them, from 1 to rest.size(). A piece comes back as a whole. Runs on the store's thread.
using SpillSplitter = std::size_t (*)(std::span<const std::uint8_t> rest,
                                      std::size_t wanted) noexcept;

// The right to some parked bytes. Move-only; dropping it drops the bytes, at any time. One thread at a time; the
// store outlives it.
class [[nodiscard]] SpillTicket {
 public:
  SpillTicket() noexcept = default;
  SpillTicket(SpillTicket&&) noexcept = default;
  SpillTicket& operator=(SpillTicket&& other) noexcept;
  ~SpillTicket();

  // All has been fetched, or there never was anything.
  bool empty() const noexcept;
  std::uint64_t memory_bytes() const noexcept;  // held in memory at this moment, as charged
  std::uint64_t disk_bytes() const noexcept;    // in the file at this moment
  std::uint64_t left_bytes() const noexcept;    // bytes that are still to be fetched
  // The store left the bytes as they were, but has a file: park_again() may help.
  bool given_up() const noexcept;
  // The store has finished with the parked bytes, well or not: it does not touch them before the next fetch() or
  // park_again(). Bytes that it could not store are still in memory.
  bool settled() const noexcept;

 private:
  friend class SpillStore;
  explicit SpillTicket(std::shared_ptr<detail::SpillItem> item) noexcept : item_(std::move(item)) {}
  std::shared_ptr<detail::SpillItem> item_;
};

enum class SpillError : std::uint8_t {
  none,
  no_memory,  // the budget refused room for the next piece; the bytes are safe, try again
  io,         // the file could not be read; trying again is allowed
  corrupt,    // the file gave other bytes
  stopped,    // the store has ended
};

// What comes back: bytes [begin, end) of the buffer. The first fetch of bytes that had not been
// stored yet gives the very buffer that was parked; else it is the next piece.
struct SpillFetched {
  SpillError error = SpillError::none;
  Buffer buffer;
  std::size_t begin = 0, end = 0;
};
using SpillDone = std::function<void(SpillFetched)>;

struct SpillStats {
  // Now.
  std::uint64_t parked_bytes = 0;  // of tickets, as they were before compression
  std::uint64_t memory_bytes = 0;  // of them in memory, compressed
  std::uint64_t disk_bytes = 0;    // of them in the file
  std::uint64_t queued = 0;        // parks that have not begun
  // Since the start.
  std::uint64_t parks = 0, fetches = 0;
  std::uint64_t refused = 0;    // parks: the queue was full
  std::uint64_t given_up = 0;   // parks that left the bytes as they were: no gain, no room, errors
  std::uint64_t withdrawn = 0;  // parks that a fetch or an end came before
  std::uint64_t raw_bytes = 0;  // stored, before compression
  std::uint64_t stored_bytes = 0;  // and after
  std::uint64_t written_bytes = 0, read_bytes = 0;
  std::uint64_t no_room = 0;  // blocks that memory.spill.limit had no room for
  std::uint64_t write_errors = 0, read_errors = 0, corrupt = 0;
  bool has_file = false, on_tmpfs = false;
  std::uint64_t limit_bytes = 0;
};

struct SpillOptions {
  std::uint64_t limit_bytes = 0;  // of the file
  std::size_t queue_max = 1024;   // parks waiting; beyond it they are refused
  std::size_t piece_bytes = 256UL * 1024;
  // After an error the file is left alone for this time; then bytes that were given up may be tried again.
  std::int64_t retry_ns = 10'000'000'000;
};

class SpillStore {
 public:
  enum class Drive : std::uint8_t { thread, manual };  // manual: run_one() does the work

  // `file` null: compressed bytes stay in memory, charged to `budget`.
  SpillStore(const SpillOptions& options, MemoryBudget& budget, std::unique_ptr<SpillFile> file,
             Drive drive = Drive::thread);
  ~SpillStore();  // REQUIRES that no ticket is left
  SpillStore(const SpillStore&) = delete;
  SpillStore& operator=(const SpillStore&) = delete;

  // Any thread. Takes bytes [begin, end) of the buffer, which goes once they are stored. nullopt:
  // refused, and `buffer` is as it was. `now_ns`: the caller's steady clock.
  // REQUIRES begin < end <= buffer.size().
  std::optional<SpillTicket> park(Buffer& buffer, std::size_t begin, std::size_t end,
                                  SpillSplitter splitter, std::int64_t now_ns);
  // Parks given-up bytes once more, if it is time. True: it is queued.
  bool park_again(SpillTicket& ticket, std::int64_t now_ns);

  // Any thread. The next piece, its room reserved of `budget` first. Set: here it is. nullopt:
  // `done` is called with it on the store's thread, exactly once, later; until then the ticket may
  // only be dropped (`done` gets `stopped`). `io` for a ticket whose piece is still on its way to an earlier fetch.
  // REQUIRES !ticket.empty().
  std::optional<SpillFetched> fetch(SpillTicket& ticket, MemoryBudget& budget, SpillDone done);

  // Does one pending piece of work; false: there was none. REQUIRES Drive::manual.
  bool run_one();
  // Ends the thread after what it is doing; fetches that wait get `stopped`. Nothing is parked any
  // more. Any thread; again is harmless.
  void stop();

  SpillStats stats() const;
  bool has_file() const noexcept { return has_file_; }

 private:
  friend class SpillTicket;
  using ItemPtr = std::shared_ptr<detail::SpillItem>;
  struct FetchJob {
    ItemPtr item;
    Buffer into;
    SpillDone done;
  };
  struct ParkJob {
    ItemPtr item;
    std::int64_t now_ns;
  };
  enum class Stored : std::uint8_t { yes, interrupted, given_up };

  void run();
  bool work_once();
  void drop(const ItemPtr& item) noexcept;
  void give_back_extents(std::vector<SpillExtent> extents);
  void do_park(ParkJob job);
  Stored store_all(detail::SpillItem& item, std::int64_t now_ns);
  bool store_piece(detail::SpillItem& item, std::span<const std::uint8_t> piece,
                   std::int64_t now_ns);
  bool write_block(const BlockCodec::Encoded& encoded, SpillExtent& extent, std::int64_t now_ns);
  void settle_park(const ItemPtr& item, Stored stored, std::int64_t now_ns);
  void do_fetch(FetchJob job);
  SpillError read_piece(detail::SpillItem& item, std::span<std::uint8_t> into);
  bool read_extent(SpillExtent extent, std::span<std::uint8_t> into);
  void return_extents(const detail::SpillItem& item);
  detail::SpillPiece take_front_piece(detail::SpillItem& item);
  std::deque<detail::SpillPiece> take_pieces(detail::SpillItem& item);
  static SpillFetched take_whole(detail::SpillItem& item);

  const SpillOptions options_;
  MemoryBudget& budget_;
  const std::unique_ptr<SpillFile> file_;
  const bool has_file_;

  // The working thread's own.
  BlockCodec codec_;
  SpillExtents extents_;
  std::vector<std::uint8_t> io_scratch_;
  std::int64_t file_failed_ns_;
  std::uint64_t next_seed_ = 1;

  mutable std::mutex mutex_;  // the rest, and the items' states; never held during I/O
  std::condition_variable wake_;
  std::deque<FetchJob> fetches_;
  std::deque<ParkJob> parks_;
  std::vector<SpillExtent> returned_;  // of dropped tickets: to be punched
  SpillStats stats_;
  bool stopping_ = false;
  std::size_t items_ = 0;
  std::thread thread_;
};

}  // namespace spillway
