// Sends requests with libcurl. Connections are kept and used again; every call has its time limits, and
// whatever goes wrong on the way is a sentence in the answer, never an exception: whoever asks decides
// whether to try again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tandem/store/s3/request.h"

namespace tandem::s3 {

struct TimeLimits {
  std::chrono::milliseconds connect = std::chrono::seconds(10);
  std::chrono::milliseconds silence = std::chrono::seconds(30);  // no byte for so long
  std::chrono::milliseconds call = std::chrono::seconds(60);     // and a second more for each 64 KiB
};

struct Answer {
  int status = 0;  // 0: there is none, and `trouble` says why
  std::string trouble;
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;                            // of at most kMostAnswer, and not what went to `into`

  bool good() const { return status >= 200 && status < 300; }
  std::string header(const std::string& name) const;  // empty where there is none
};

inline constexpr size_t kMostAnswer = size_t{16} << 20;   // a page of a list has less than 2 MiB
inline constexpr size_t kMostHeaders = size_t{64} << 10;  // of one answer

class Http {
 public:
  // A call ends soon where `given_up` becomes true.
  explicit Http(TimeLimits limits = {}, const std::atomic<bool>* given_up = nullptr)
      : limits_(limits), given_up_(given_up) {}
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  // May be called by many threads at the same time. With `into`, the body of an answer that is good() goes
  // there; it is trouble if it has another number of bytes.
  Answer send(const Request& request, std::optional<std::span<std::byte>> into = std::nullopt) const;

 private:
  void* take() const;
  void put_back(void* handle) const;

  TimeLimits limits_;
  const std::atomic<bool>* given_up_;
  mutable std::mutex mutex_;
  mutable std::vector<void*> idle_;  // libcurl's handles, each with its connections
};

}  // namespace tandem::s3
