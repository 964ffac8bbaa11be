// The metadata servers of the clouds, asked whether this machine is about to be taken back.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "tandem/config/config.h"
#include "tandem/watch/spot/notice.h"

namespace tandem::spot {

class Source {
 public:
  virtual ~Source() = default;
  virtual std::string_view name() const = 0;
  virtual std::chrono::milliseconds interval() const = 0;  // between questions, as the cloud advises
  // Whether the server is there and is this cloud's.
  virtual bool answers() = 0;
  // Throws DataError or IoError where the answer cannot be understood or there is none.
  virtual std::optional<Notice> ask() = 0;
};

// `endpoint`: a base URL instead of the cloud's own; empty for that. A question ends soon where `given_up`
// becomes true.
std::unique_ptr<Source> make_source(SpotWatch cloud, const std::string& endpoint,
                                    const std::atomic<bool>* given_up);

}  // namespace tandem::spot
