// Memory that a launcher keeps for the ranks of its node, so that what they put there outlives them. It is
// anonymous: nothing is left of it when the launcher is gone, however it went.
//
// Each rank has two files, so that one is whole while the other is written. A file is as long as its rank
// makes it, and takes no memory before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/descriptor.h"

namespace tandem {

inline constexpr const char* kKeptVariable = "TANDEM_KEPT_MEMORY";  // holds the ticket
inline constexpr int kKeptFiles = 2;                                // of each rank

// The launcher's side.
class KeptMemory {
 public:
  explicit KeptMemory(int num_ranks);  // throws CommError
  std::string ticket() const;          // "PID FD FD ...", what ranks open it by

 private:
  std::vector<std::unique_ptr<Descriptor>> files_;
};

// A rank's view of one of the files, mapped.
class KeptFile {
 public:
  explicit KeptFile(std::unique_ptr<Descriptor> file) : file_(std::move(file)) {}
  ~KeptFile() { unmap(); }
  KeptFile(KeptFile&& other) noexcept;
  KeptFile& operator=(KeptFile&&) = delete;

  // Throws CommError where the launcher has none, and for a ticket that names anything but such files.
  static std::vector<KeptFile> open_all(const std::string& ticket);

  std::span<std::byte> map();               // as long as it is
  std::span<std::byte> map(int64_t bytes);  // ... once it has this length; its content is undefined then
  void unmap();

 private:
  std::unique_ptr<Descriptor> file_;
  std::span<std::byte> mapped_;
};

}  // namespace tandem
