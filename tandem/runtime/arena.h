// One allocation of exactly the planned size, touched and zeroed when it is made, so that what was announced
// is what is resident, and no step ever meets a page fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/base/thread_pool.h"

namespace tandem {

class HostArena {
 public:
  HostArena() = default;
  HostArena(int64_t bytes, ThreadPool& pool);  // throws PlanError if the machine cannot give it
  ~HostArena();
  HostArena(HostArena&& other) noexcept;
  HostArena& operator=(HostArena&& other) noexcept;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {data_, static_cast<size_t>(bytes_)}; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tandem
