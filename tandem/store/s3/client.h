// Calls of S3 that end in an answer: signed, tried again with pauses that grow where the server or the way to
// it has trouble, with fresh keys where they have run out. What cannot be mended is an IoError that starts
// with the object's address and names no secret.
#pragma once

#include <atomic>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>

#include "tandem/store/s3/credentials.h"
#include "tandem/store/s3/http.h"
#include "tandem/store/s3/place.h"

namespace tandem::s3 {

struct Retries {
  int most = 8;  // calls in all
  std::chrono::milliseconds first =
      std::chrono::milliseconds(100);  // a pause is up to this, then twice it...
  std::chrono::milliseconds longest = std::chrono::seconds(10);
};

struct Call {
  std::string what;  // "put": for messages
  std::string method;
  std::string name;  // below the place's prefix; of calls about the bucket, empty
  std::map<std::string, std::string> query = {};
  std::map<std::string, std::string> headers = {};
  std::span<const std::byte> body = {};
  bool whole_bucket = false;
};

class Client {
 public:
  Client(Place place, Environment environment, TimeLimits limits = {}, Retries retries = {});

  const Place& place() const { return place_; }
  std::string address(const std::string& name) const;  // s3://bucket/prefix/name

  // An answer that is good() or has one of the statuses in `accepted`.
  Answer call(const Call& call, std::initializer_list<int> accepted = {},
              std::optional<std::span<std::byte>> into = std::nullopt);

  void give_up() { given_up_.store(true); }  // calls under way and to come fail

 private:
  enum class Verdict { Good, Again, AgainAtOnce, Failed };
  Request make_request(const Call& call, const KeyPair& keys);
  Verdict judge(const Answer& answer, std::initializer_list<int> accepted, const KeyPair& keys,
                bool& has_renewed);
  void pause(int attempt) const;
  std::string explain(const Call& call, const Answer& answer, int attempts) const;

  Place place_;
  Environment environment_;
  Credentials credentials_;
  std::atomic<bool> given_up_{false};
  Http http_;
  Retries retries_;
  std::mutex mutex_;                     // of what a server may correct:
  std::string region_;                   // where the bucket really is
  std::atomic<int64_t> clock_ahead_{0};  // the server's clock, seconds before ours
};

}  // namespace tandem::s3
