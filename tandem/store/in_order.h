// An object read from front to back. One that is far is read ahead by several streams, in pieces of a few
// MiB, however little is asked for at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "tandem/store/store.h"

namespace tandem {

class InOrder {
 public:
  static constexpr int64_t kFarPiece = int64_t{4} << 20;

  explicit InOrder(const ObjectReader& source);  // which outlives it
  ~InOrder();
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

  int64_t at() const { return at_; }
  // The bytes that come next, one at least and `most` at most; they stay until the next call. Not past the
  // end. Throws as the object does.
  std::span<const std::byte> next(size_t most);
  // As many as `dst` has, where a copy is saved that way: not of an object that is far.
  void read(std::span<std::byte> dst);

 private:
  struct Slot {
    std::vector<std::byte> bytes;
    int64_t piece = -1;  // that lies there, or why it does not
    std::exception_ptr failure;
  };
  void begin_streams();
  void fetch();
  const Slot& await(int64_t piece);

  const ObjectReader& source_;
  const int64_t size_;
  const bool is_far_;
  int64_t at_ = 0;
  std::vector<std::byte> near_;  // what next() gives of an object that is near
  std::vector<std::thread> streams_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<Slot> slots_;  // piece i lies in slot i modulo their number
  int64_t begun_ = 0;        // pieces whose reads have begun
  int64_t current_ = 0;      // the one that is being used; those before it are done with
  bool is_over_ = false;
};

}  // namespace tandem
