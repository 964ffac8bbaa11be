// One runner at a time works on a store. The lock is on a file that steps inherit open: a runner that was
// killed leaves it locked until the last of its steps is gone, too, so that nobody writes beside the next.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "tandem/base/descriptor.h"

namespace tandem::pipeline {

class StoreLock {
 public:
  // Makes the directory. Waits a little for the steps of a runner that is dead; throws IoError where another
  // is at work.
  explicit StoreLock(const std::filesystem::path& store);
  int descriptor() const { return file_.get(); }

 private:
  Descriptor file_;
};

// The process that works on the store now, 0 if none.
pid_t runner_of(const std::filesystem::path& store);

}  // namespace tandem::pipeline
