// For tests: a server on this machine that speaks the part of S3 that is used here, with its objects in
// memory, and that has trouble when it is told to.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tandem/store/s3/s3_store.h"

namespace tandem::s3 {

enum class Trouble {
  None,
  Internal,     // 500 instead of doing it
  SlowDown,     // 503
  Expired,      // the keys have run out
  CutBefore,    // the connection ends before anything is done
  CutAfter,     // it is done, and the connection ends before the answer
  CutHalf,      // half of the answer's body comes
  Late,         // the answer comes after longer than anybody waits
  ShortLength,  // the answer is whole and has less than was asked for
  BadXml,       // a good status with a body that is none
  ErrorInGood,  // a good status, and an error as the body; of a POST only, as with S3
};

struct SeenRequest {
  std::string method, path, query;
  std::map<std::string, std::string> headers;
  std::string body;
};

class FakeServer {
 public:
  FakeServer();
  ~FakeServer();
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string url() const;
  Environment environment() const;  // with keys and this endpoint, and nothing of the machine's
  std::shared_ptr<S3Store> store(const std::string& address, size_t part_bytes = 64 << 10) const;

  // Asked before each request is done; requests are counted from 0.
  void set_trouble(std::function<Trouble(int number, const SeenRequest&)> trouble);
  // Answers what is not S3's: "METHOD /path" to a body.
  void set_page(const std::string& method_and_path, const std::string& body);
  int num_requests() const { return num_requests_.load(); }
  std::vector<SeenRequest> seen() const;
  std::map<std::string, std::string> objects() const;  // by key, of all buckets
  size_t num_uploads() const;

 private:
  struct Reply {
    int status = 200;
    std::map<std::string, std::string> headers;
    std::string body;
  };
  void serve();
  void talk(int connection);
  bool answer(int connection, const SeenRequest& request);
  Reply handle(const SeenRequest& request);
  Reply handle_object(const SeenRequest& request, const std::string& key);
  Reply handle_upload(const SeenRequest& request, const std::string& key);
  Reply get(const SeenRequest& request, const std::string& key) const;
  Reply list(const SeenRequest& request) const;

  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> ending_{false};
  std::atomic<int> num_requests_{0};
  mutable std::mutex mutex_;
  std::function<Trouble(int, const SeenRequest&)> trouble_;
  std::map<std::string, std::string> pages_;
  std::map<std::string, std::string> objects_;
  std::map<std::string, std::pair<std::string, std::map<int, std::string>>> uploads_;  // id: key, parts
  int next_upload_ = 1;
  std::vector<SeenRequest> seen_;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace tandem::s3
