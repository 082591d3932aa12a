#include "allocator/spill.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <limits>
#include <utility>

namespace spillway {

namespace detail {

struct SpillBlock {
  BlockInfo info;
  std::uint64_t seed = 0;
  Buffer memory;  // one of the two holds it
  SpillExtent extent;
};

struct SpillPiece {
  std::size_t raw_bytes = 0;
  std::vector<SpillBlock> blocks;
};

//            +-- fetch: taken back --> empty
//            |                           ^
// waiting -> working -> stored <-> reading
//            |   ^
//            v   |
//           whole (given up; the bytes stay in `raw`)
enum class SpillItemState : std::uint8_t { waiting, working, stored, whole, reading, empty };

// Parked bytes. State, flags and `taker` belong to the store's mutex; `raw`, `pieces` to the
// working thread while working or reading, to the mutex otherwise.
struct SpillItem {
  explicit SpillItem(SpillStore& owner) : store(owner) {}

  SpillStore& store;
  SpillItemState state = SpillItemState::waiting;
  Buffer raw;
  std::size_t begin = 0, end = 0;
  SpillSplitter splitter = nullptr;
  std::deque<SpillPiece> pieces;
  SpillDone taker;                       // of a fetch that came while working
  std::atomic<bool> interrupted{false};  // working: stop, the holder wants or drops the bytes
  bool dropped = false;
  std::int64_t given_up_ns = 0;
  std::atomic<bool> is_empty{false}, given_up{false}, is_settled{false};
  std::atomic<std::uint64_t> memory_bytes{0}, disk_bytes{0}, left_bytes{0};
};

}  // namespace detail

using detail::SpillBlock;
using detail::SpillItem;
using detail::SpillItemState;
using detail::SpillPiece;

namespace {

constexpr std::int64_t long_ago_ns = std::numeric_limits<std::int64_t>::min() / 2;

void count_down(std::atomic<std::uint64_t>& counter, std::uint64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) - by, std::memory_order_relaxed);
}

template <class Bytes>
std::uint64_t sum_of_blocks(const SpillItem& item, Bytes bytes) {
  std::uint64_t sum = 0;
  for (const SpillPiece& piece : item.pieces) {
    for (const SpillBlock& block : piece.blocks) sum += bytes(block);
  }
  return sum;
}

std::uint64_t memory_of(const SpillItem& item) {
  return sum_of_blocks(item, [](const SpillBlock& block) { return block.memory.capacity(); });
}

std::uint64_t disk_of(const SpillItem& item) {
  return sum_of_blocks(item, [](const SpillBlock& block) { return block.extent.bytes; });
}

std::uint64_t stored_of(const SpillItem& item) {
  return sum_of_blocks(item, [](const SpillBlock& block) { return block.info.stored_bytes; });
}

// In memory a block is kept only if it is smaller there.
bool saves_an_eighth(std::size_t held, std::size_t raw) noexcept { return held <= raw - raw / 8; }

}  // namespace

// ---- tickets

SpillTicket& SpillTicket::operator=(SpillTicket&& other) noexcept {
  if (this != &other) {
    if (item_) item_->store.drop(item_);
    item_ = std::move(other.item_);
  }
  return *this;
}

SpillTicket::~SpillTicket() {
  if (item_) item_->store.drop(item_);
}

bool SpillTicket::empty() const noexcept {
  return !item_ || item_->is_empty.load(std::memory_order_acquire);
}

std::uint64_t SpillTicket::memory_bytes() const noexcept {
  return item_ ? item_->memory_bytes.load(std::memory_order_relaxed) : 0;
}

std::uint64_t SpillTicket::disk_bytes() const noexcept {
  return item_ ? item_->disk_bytes.load(std::memory_order_relaxed) : 0;
}

std::uint64_t SpillTicket::left_bytes() const noexcept {
  return item_ ? item_->left_bytes.load(std::memory_order_relaxed) : 0;
}

bool SpillTicket::given_up() const noexcept {
  return item_ && item_->given_up.load(std::memory_order_relaxed);
}

bool SpillTicket::settled() const noexcept {
  return !item_ || item_->is_settled.load(std::memory_order_acquire);
}

// ---- callers' side

SpillStore::SpillStore(const SpillOptions& options, MemoryBudget& budget,
                       std::unique_ptr<SpillFile> file, Drive drive)
    : options_(options),
      budget_(budget),
      file_(std::move(file)),
      has_file_(file_ != nullptr),
      extents_(file_ ? options.limit_bytes : 0),
      file_failed_ns_(long_ago_ns) {
  stats_.has_file = has_file_;
  stats_.on_tmpfs = has_file_ && file_->on_tmpfs();
  stats_.limit_bytes = extents_.limit_bytes();
  if (drive == Drive::thread) thread_ = std::thread([this] { run(); });
}

SpillStore::~SpillStore() {
  stop();
  assert(items_ == 0);
}

std::optional<SpillTicket> SpillStore::park(Buffer& buffer, std::size_t begin, std::size_t end,
                                            SpillSplitter splitter, std::int64_t now_ns) {
  assert(begin < end && end <= buffer.size());
  auto item = std::make_shared<SpillItem>(*this);
  item->begin = begin;
  item->end = end;
  item->splitter = splitter;
  item->memory_bytes = buffer.capacity();
  item->left_bytes = end - begin;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || parks_.size() >= options_.queue_max) {
      ++stats_.refused;
      return std::nullopt;
    }
    item->raw = std::move(buffer);
    parks_.push_back({item, now_ns});
    ++items_;
    ++stats_.parks;
    stats_.parked_bytes += end - begin;
  }
  wake_.notify_one();
  return SpillTicket(std::move(item));
}

bool SpillStore::park_again(SpillTicket& ticket, std::int64_t now_ns) {
  if (!ticket.item_) return false;
  {
    const std::lock_guard lock(mutex_);
    SpillItem& item = *ticket.item_;
    if (item.state != SpillItemState::whole || now_ns - item.given_up_ns < options_.retry_ns)
      return false;
    if (stopping_ || parks_.size() >= options_.queue_max) return false;
    item.state = SpillItemState::waiting;
    item.given_up = false;
    item.is_settled = false;
    parks_.push_back({ticket.item_, now_ns});
  }
  wake_.notify_one();
  return true;
}

// The parked buffer itself. REQUIRES the mutex, and that no thread works on it.
SpillFetched SpillStore::take_whole(SpillItem& item) {
  SpillFetched fetched{SpillError::none, std::move(item.raw), item.begin, item.end};
  item.state = SpillItemState::empty;
  item.is_settled.store(true, std::memory_order_release);
  item.given_up = false;
  item.memory_bytes = 0;
  item.left_bytes = 0;
  item.is_empty.store(true, std::memory_order_release);
  return fetched;
}

std::optional<SpillFetched> SpillStore::fetch(SpillTicket& ticket, MemoryBudget& budget,
                                              SpillDone done) {
  assert(!ticket.empty());
  SpillItem& item = *ticket.item_;
  std::size_t piece_bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.fetches;
    if (item.state == SpillItemState::waiting || item.state == SpillItemState::whole) {
      // A job that waits for it finds the state changed.
      if (item.state == SpillItemState::waiting) ++stats_.withdrawn;
      stats_.parked_bytes -= item.end - item.begin;
      return take_whole(item);
    }
    if (stopping_) return SpillFetched{SpillError::stopped, {}, 0, 0};
    if (item.state == SpillItemState::working && !item.taker) {
      item.taker = std::move(done);
      item.interrupted = true;
      return std::nullopt;
    }
    // On its way to a holder that stopped waiting: a second fetch would give the same piece twice.
    if (item.state != SpillItemState::stored) return SpillFetched{SpillError::io, {}, 0, 0};
    piece_bytes = item.pieces.front().raw_bytes;
  }
  // Only this ticket's holder changes `stored`: the lock is not needed to take memory.
  auto into = Buffer::allocate(budget, piece_bytes);
  if (!into) return SpillFetched{SpillError::no_memory, {}, 0, 0};
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return SpillFetched{SpillError::stopped, {}, 0, 0};
    item.state = SpillItemState::reading;
    fetches_.push_back({ticket.item_, *std::move(into), std::move(done)});
  }
  wake_.notify_one();
  return std::nullopt;
}

void SpillStore::drop(const ItemPtr& item) noexcept {
  Buffer raw;
  std::deque<SpillPiece> pieces;  // freed after the lock
  {
    const std::lock_guard lock(mutex_);
    item->dropped = true;
    item->interrupted = true;
    --items_;
    if (item->state == SpillItemState::working || item->state == SpillItemState::reading) return;
    if (item->state == SpillItemState::waiting) ++stats_.withdrawn;
    raw = std::move(item->raw);
    pieces = take_pieces(*item);
  }
  wake_.notify_one();
}

// No request for the rest of an item will come. What it returns is freed after the lock.
// REQUIRES the mutex, and that no thread works on it.
std::deque<SpillPiece> SpillStore::take_pieces(SpillItem& item) {
  stats_.parked_bytes -= item.left_bytes.load();
  stats_.memory_bytes -= memory_of(item);
  item.left_bytes = 0;
  item.state = SpillItemState::empty;
  item.is_empty.store(true, std::memory_order_release);
  return_extents(item);
  return std::exchange(item.pieces, {});
}

// REQUIRES the mutex.
void SpillStore::return_extents(const SpillItem& item) {
  for (const SpillPiece& piece : item.pieces) {
    for (const SpillBlock& block : piece.blocks) {
      if (block.extent.bytes > 0) returned_.push_back(block.extent);
    }
  }
}

SpillStats SpillStore::stats() const {
  const std::lock_guard lock(mutex_);
  SpillStats stats = stats_;
  stats.queued = parks_.size();
  return stats;
}

void SpillStore::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  std::deque<FetchJob> fetches;
  {
    const std::lock_guard lock(mutex_);
    fetches.swap(fetches_);
    for (const ParkJob& job : parks_) job.item->is_settled.store(true, std::memory_order_release);
    parks_.clear();
    for (FetchJob& job : fetches) {
      // The bytes stay where they are until the ticket goes.
      job.item->state = SpillItemState::stored;
      if (job.item->dropped) take_pieces(*job.item);
    }
  }
  for (FetchJob& job : fetches) job.done(SpillFetched{SpillError::stopped, {}, 0, 0});
}

// ---- the working side

void SpillStore::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] {
        return stopping_ || !fetches_.empty() || !parks_.empty() || !returned_.empty();
      });
      if (stopping_) return;
    }
    work_once();
  }
}

bool SpillStore::run_one() {
  assert(!thread_.joinable());
  return work_once();
}

// Fetches first: a request waits for them. Then returned space, which makes room for parks.
bool SpillStore::work_once() {
  std::unique_lock lock(mutex_);
  if (!fetches_.empty()) {
    FetchJob job = std::move(fetches_.front());
    fetches_.pop_front();
    lock.unlock();
    do_fetch(std::move(job));
    return true;
  }
  if (!returned_.empty()) {
    std::vector<SpillExtent> extents = std::exchange(returned_, {});
    lock.unlock();
    give_back_extents(std::move(extents));
    return true;
  }
  while (!parks_.empty()) {
    ParkJob job = std::move(parks_.front());
    parks_.pop_front();
    if (job.item->state != SpillItemState::waiting) continue;  // withdrawn
    job.item->state = SpillItemState::working;
    lock.unlock();
    do_park(std::move(job));
    return true;
  }
  return false;
}

void SpillStore::give_back_extents(std::vector<SpillExtent> extents) {
  const std::uint64_t end_before = extents_.end_bytes();
  for (const SpillExtent& extent : extents) extents_.give(extent);
  const std::uint64_t end = extents_.end_bytes();
  // A file system that cannot do one of them keeps the space until it is written to again.
  if (end < end_before) file_->truncate(end);
  std::sort(extents.begin(), extents.end(),
            [](const SpillExtent& a, const SpillExtent& b) { return a.offset < b.offset; });
  for (std::size_t i = 0; i < extents.size();) {
    SpillExtent hole = extents[i++];
    while (i < extents.size() && extents[i].offset == hole.offset + hole.bytes)
      hole.bytes += extents[i++].bytes;
    if (hole.offset < end) file_->punch(hole.offset, hole.bytes);
  }
  const std::lock_guard lock(mutex_);
  stats_.disk_bytes = extents_.used_bytes();
}

void SpillStore::do_park(ParkJob job) {
  const Stored stored = store_all(*job.item, job.now_ns);
  settle_park(job.item, stored, job.now_ns);
}

SpillStore::Stored SpillStore::store_all(SpillItem& item, std::int64_t now_ns) {
  std::span<const std::uint8_t> rest = item.raw.bytes().subspan(item.begin, item.end - item.begin);
  while (!rest.empty()) {
    if (item.interrupted.load(std::memory_order_relaxed)) return Stored::interrupted;
    std::size_t bytes = std::min(rest.size(), options_.piece_bytes);
    if (item.splitter != nullptr) {
      bytes = std::clamp<std::size_t>(item.splitter(rest, options_.piece_bytes), 1, rest.size());
    }
    if (!store_piece(item, rest.first(bytes), now_ns)) return Stored::given_up;
    rest = rest.subspan(bytes);
  }
  return Stored::yes;
}

// False: there is no place for it. The pieces stored so far stay in the item.
bool SpillStore::store_piece(SpillItem& item, std::span<const std::uint8_t> bytes,
                             std::int64_t now_ns) {
  SpillPiece& piece = item.pieces.emplace_back();
  piece.raw_bytes = bytes.size();
  while (!bytes.empty()) {
    const auto raw = bytes.first(std::min(bytes.size(), BlockCodec::block_bytes_max));
    bytes = bytes.subspan(raw.size());
    SpillBlock block;
    block.seed = next_seed_++;
    const BlockCodec::Encoded encoded = codec_.encode(raw, block.seed);
    block.info = encoded.info;
    if (!write_block(encoded, block.extent, now_ns)) {
      auto held = Buffer::allocate(budget_, encoded.bytes.size());
      if (!held || !saves_an_eighth(held->capacity(), raw.size())) return false;
      held->append(encoded.bytes.data(), encoded.bytes.size());
      block.memory = *std::move(held);
    }
    piece.blocks.push_back(std::move(block));
  }
  return true;
}

bool SpillStore::write_block(const BlockCodec::Encoded& encoded, SpillExtent& extent,
                             std::int64_t now_ns) {
  if (!has_file_ || now_ns - file_failed_ns_ < options_.retry_ns) return false;
  const auto room = extents_.take(encoded.bytes.size());
  if (!room) {
    const std::lock_guard lock(mutex_);
    ++stats_.no_room;
    return false;
  }
  std::span<const std::uint8_t> rest = encoded.bytes;
  std::uint64_t offset = room->offset;
  while (!rest.empty()) {
    const ssize_t written = file_->write(rest, offset);
    if (written == -EINTR) continue;
    if (written <= 0 || static_cast<std::size_t>(written) > rest.size()) {
      file_failed_ns_ = now_ns;
      give_back_extents({*room});
      const std::lock_guard lock(mutex_);
      ++stats_.write_errors;
      return false;
    }
    rest = rest.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  extent = *room;
  const std::lock_guard lock(mutex_);
  stats_.written_bytes += encoded.bytes.size();
  stats_.disk_bytes = extents_.used_bytes();
  return true;
}

// The result of a park. If a fetch came meanwhile, the bytes go back to it as they were.
void SpillStore::settle_park(const ItemPtr& item, Stored stored, std::int64_t now_ns) {
  SpillDone taker;
  SpillFetched taken;
  Buffer raw;
  std::deque<SpillPiece> pieces;  // both freed after the lock
  {
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = item->end - item->begin;
    if (item->taker || item->dropped) {
      return_extents(*item);
      pieces.swap(item->pieces);
      ++stats_.withdrawn;
      stats_.parked_bytes -= bytes;
      taken = take_whole(*item);
      taker = std::move(item->taker);
      if (item->dropped) {
        raw = std::move(taken.buffer);
        taken = SpillFetched{SpillError::stopped, {}, 0, 0};
      }
    } else if (stored == Stored::yes) {
      item->state = SpillItemState::stored;
      item->memory_bytes = memory_of(*item);
      item->disk_bytes = disk_of(*item);
      stats_.memory_bytes += item->memory_bytes;
      stats_.raw_bytes += bytes;
      stats_.stored_bytes += stored_of(*item);
      raw = std::move(item->raw);
    } else {
      return_extents(*item);
      pieces.swap(item->pieces);
      item->state = SpillItemState::whole;
      item->given_up = has_file_;
      item->given_up_ns = now_ns;
      ++stats_.given_up;
    }
    item->is_settled.store(true, std::memory_order_release);
  }
  if (taker) taker(std::move(taken));
}

void SpillStore::do_fetch(FetchJob job) {
  SpillItem& item = *job.item;
  SpillFetched fetched;
  const std::size_t bytes = item.pieces.front().raw_bytes;
  fetched.error = read_piece(item, job.into.free_space().first(bytes));
  if (fetched.error == SpillError::none) {
    job.into.set_size(bytes);
    fetched.buffer = std::move(job.into);
    fetched.end = bytes;
  }
  std::deque<SpillPiece> done_with;  // its memory goes before the waiting request resumes
  {
    const std::lock_guard lock(mutex_);
    item.state = SpillItemState::stored;
    if (fetched.error == SpillError::none) {
      done_with.push_back(take_front_piece(item));
    } else {
      // It stays where it is: the next request gets the error again, or the data from a disk that recovered.
      ++(fetched.error == SpillError::corrupt ? stats_.corrupt : stats_.read_errors);
    }
    if (item.dropped) {
      for (SpillPiece& piece : take_pieces(item)) done_with.push_back(std::move(piece));
      fetched.error = SpillError::stopped;
    }
  }
  done_with.clear();
  if (fetched.error != SpillError::none) fetched = SpillFetched{fetched.error, {}, 0, 0};
  job.into.reset();
  job.done(std::move(fetched));
}

// REQUIRES the mutex.
SpillPiece SpillStore::take_front_piece(SpillItem& item) {
  SpillPiece piece = std::move(item.pieces.front());
  item.pieces.pop_front();
  stats_.parked_bytes -= piece.raw_bytes;
  count_down(item.left_bytes, piece.raw_bytes);
  for (const SpillBlock& block : piece.blocks) {
    stats_.memory_bytes -= block.memory.capacity();
    count_down(item.memory_bytes, block.memory.capacity());
    count_down(item.disk_bytes, block.extent.bytes);
    if (block.extent.bytes > 0) returned_.push_back(block.extent);
  }
  if (item.pieces.empty()) {
    item.state = SpillItemState::empty;
    item.is_empty.store(true, std::memory_order_release);
  }
  return piece;
}

SpillError SpillStore::read_piece(SpillItem& item, std::span<std::uint8_t> into) {
  for (const SpillBlock& block : item.pieces.front().blocks) {
    std::span<const std::uint8_t> stored = block.memory.bytes();
    if (block.extent.bytes > 0) {
      io_scratch_.resize(std::max<std::size_t>(io_scratch_.size(), block.info.stored_bytes));
      const std::span<std::uint8_t> scratch(io_scratch_.data(), block.info.stored_bytes);
      if (!read_extent(block.extent, scratch)) return SpillError::io;
      stored = scratch;
    }
    const auto target = into.first(block.info.raw_bytes);
    if (!codec_.decode(block.info, stored, block.seed, target)) return SpillError::corrupt;
    into = into.subspan(block.info.raw_bytes);
  }
  return SpillError::none;
}

bool SpillStore::read_extent(SpillExtent extent, std::span<std::uint8_t> into) {
  const std::size_t bytes = into.size();
  std::uint64_t offset = extent.offset;
  while (!into.empty()) {
    const ssize_t got = file_->read(into, offset);
    if (got == -EINTR) continue;
    if (got <= 0 || static_cast<std::size_t>(got) > into.size()) return false;
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  const std::lock_guard lock(mutex_);
  stats_.read_bytes += bytes;
  return true;
}

}  // namespace spillway
