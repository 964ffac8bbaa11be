// Writes an object of any length in parts, several of which are on their way at the same time. What fits
// into one part is put at once. Nothing is seen of the object before finish().
#pragma once

#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tandem/store/s3/client.h"
#include "tandem/store/store.h"

namespace tandem::s3 {

// S3 takes at most 10,000 parts, of at least 5 MiB but for the last.
inline constexpr int64_t kMostParts = 10'000;
inline constexpr size_t kLeastPart = size_t{5} << 20;
inline constexpr size_t kPartBytes = size_t{8} << 20;
inline constexpr int kUploadStreams = kStoreStreams;

// How a writer cuts its object, and into which memory. `bytes` is of one part.
struct PartBuffers {
  std::span<std::byte> memory;  // at least one part; empty: the writer takes its own
  size_t bytes = kPartBytes;

  size_t count() const { return memory.empty() ? kUploadStreams + 1 : memory.size() / bytes; }
};

// What a writer of an object of `bytes` uses at most.
int64_t upload_memory(int64_t bytes);

// Into memory that is lent: several parts, or one where it is short.
PartBuffers cut_memory(std::span<std::byte> memory);

class MultipartWriter final : public ObjectWriter {
 public:
  MultipartWriter(Client& client, std::string name, const PartBuffers& buffers);
  ~MultipartWriter() override;  // unless it is finished, takes back what was sent
  MultipartWriter(const MultipartWriter&) = delete;
  MultipartWriter& operator=(const MultipartWriter&) = delete;

  void write_all(std::span<const std::byte> bytes) override;
  std::span<std::byte> room(size_t most) override;
  void add(size_t bytes) override;
  void finish() override;

 private:
  struct Part {
    int number = 0;
    std::string etag, checksum;
  };
  struct Stream {
    std::thread thread;
    bool done = false;
  };
  std::span<std::byte> take_buffer();
  void send_buffer();
  void send_part(int number, std::span<const std::byte> bytes, uint32_t crc);
  void join_done();
  void join_all();
  void complete();
  void take_back() noexcept;

  Client& client_;
  std::string name_;
  size_t part_bytes_;
  std::unique_ptr<std::byte[]> own_;  // not touched before it is filled
  std::string id_;                    // of the upload; empty before the second part
  std::span<std::byte> buffer_;  // one part, of which `filled_` bytes wait to be sent; empty: none is taken
  size_t filled_ = 0;
  uint32_t crc_ = 0;  // of those: taken when they are added, while they are in the cache
  int num_sent_ = 0;
  int64_t bytes_ = 0;
  bool finished_ = false;
  std::list<Stream> streams_;
  std::mutex mutex_;  // of all below, and of Stream::done
  std::condition_variable changed_;
  std::vector<std::span<std::byte>> spare_;
  std::vector<Part> parts_;
  std::exception_ptr failure_;
};

// Puts an object with one call. `headers` are added to it.
Answer put_object(Client& client, const std::string& name, std::span<const std::byte> bytes,
                  const std::map<std::string, std::string>& headers = {},
                  std::initializer_list<int> accepted = {});

}  // namespace tandem::s3
