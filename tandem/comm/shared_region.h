// Memory that the ranks of a group share: threads simply, processes through an anonymous file that the first
// maps and the others open by its descriptor's number, so that nothing is left behind whoever dies.
//
// What a ticket names is opened for writing only once it is known to be such a file: memory of this user, of
// a process of this user, of the expected size, and sealed, so that no file on a disk can be meant by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tandem {

class SharedRegion {
 public:
  // All zero at first; pages take memory once they are used.
  static std::shared_ptr<SharedRegion> for_threads(int64_t bytes);
  static std::shared_ptr<SharedRegion> create(int64_t bytes);
  // Throws CommError where the ticket is none of create's.
  static std::shared_ptr<SharedRegion> open(const std::string& ticket, int64_t bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  std::string ticket() const;  // "PID FD", what the others open it by; good until close_ticket
  void close_ticket();

 private:
  SharedRegion(int fd, int64_t bytes);
  int fd_ = -1;
  int64_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace tandem
