// A file descriptor that is closed on every path out.
#pragma once

#include <unistd.h>

#include <utility>

namespace tandem {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}  // may be negative: none
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }  // the caller closes it

 private:
  int fd_;
};

}  // namespace tandem
