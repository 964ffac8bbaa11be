#include "tandem/store/in_order.h"

#include <algorithm>

namespace tandem {

InOrder::InOrder(const ObjectReader& source)
    : source_(source), size_(source.size()), is_far_(source.is_far()) {}

InOrder::~InOrder() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  for (std::thread& stream : streams_) stream.join();
}

void InOrder::begin_streams() {
  const int64_t pieces = (size_ + kFarPiece - 1) / kFarPiece;
  const auto count = static_cast<size_t>(std::min<int64_t>(pieces, kStoreStreams));
  slots_.resize(count + 1);  // one is being used while the others are filled
  for (size_t i = 0; i < count; ++i) streams_.emplace_back([this] { fetch(); });
}

void InOrder::fetch() {
  const auto num_slots = static_cast<int64_t>(slots_.size());
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock,
                  [&] { return is_over_ || begun_ * kFarPiece >= size_ || begun_ < current_ + num_slots; });
    if (is_over_ || begun_ * kFarPiece >= size_) return;
    const int64_t piece = begun_++;
    Slot& slot = slots_[static_cast<size_t>(piece % num_slots)];
    lock.unlock();
    slot.bytes.resize(static_cast<size_t>(std::min(kFarPiece, size_ - piece * kFarPiece)));
    std::exception_ptr failure;
    try {
      source_.read_at(piece * kFarPiece, slot.bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    slot.failure = failure;
    slot.piece = piece;
    changed_.notify_all();
  }
}

const InOrder::Slot& InOrder::await(int64_t piece) {
  std::unique_lock lock(mutex_);
  if (piece != current_) {
    current_ = piece;
    changed_.notify_all();
  }
  const Slot& slot = slots_[static_cast<size_t>(piece % static_cast<int64_t>(slots_.size()))];
  changed_.wait(lock, [&] { return slot.piece == piece; });
  if (slot.failure) std::rethrow_exception(slot.failure);
  return slot;
}

std::span<const std::byte> InOrder::next(size_t most) {
  if (!is_far_) {
    near_.resize(std::max(near_.size(), most));
    const auto bytes = std::span(near_).first(most);
    read(bytes);
    return bytes;
  }
  if (at_ >= size_) throw DataError("{}: truncated: ends at byte {}", source_.description(), size_);
  if (streams_.empty()) begin_streams();
  const Slot& slot = await(at_ / kFarPiece);
  const auto bytes = std::span(slot.bytes).subspan(static_cast<size_t>(at_ % kFarPiece));
  const auto given = bytes.first(std::min(most, bytes.size()));
  at_ += static_cast<int64_t>(given.size());
  return given;
}

void InOrder::read(std::span<std::byte> dst) {
  TANDEM_CHECK(!is_far_);
  source_.read_at(at_, dst);
  at_ += static_cast<int64_t>(dst.size());
}

}  // namespace tandem
