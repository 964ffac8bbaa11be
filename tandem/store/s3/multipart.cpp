#include "tandem/store/s3/multipart.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/store/s3/answers.h"
#include "tandem/store/s3/crc32c.h"
#include "tandem/store/s3/xml.h"

namespace tandem::s3 {
namespace {

constexpr const char* kChecksum = "x-amz-checksum-crc32c";

// A hint: 36 faults instead of 18,432 while the buffers are filled for the first time.
void expect_large_pages(std::span<std::byte> memory) {
  constexpr uintptr_t kLargePage = uintptr_t{2} << 20;
  const auto begin = (reinterpret_cast<uintptr_t>(memory.data()) + kLargePage - 1) / kLargePage * kLargePage;
  const auto end = reinterpret_cast<uintptr_t>(memory.data() + memory.size()) / kLargePage * kLargePage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

int64_t upload_memory(int64_t bytes) {
  constexpr int64_t kMiB = int64_t{1} << 20, kUsual = static_cast<int64_t>(kPartBytes);
  if (bytes <= kUsual) return std::max(static_cast<int64_t>(kLeastPart), (bytes + kMiB - 1) / kMiB * kMiB);
  const int64_t of_many = (bytes / (kMostParts - 1) / kMiB + 1) * kMiB;
  return std::max(kUsual, of_many) * (kUploadStreams + 1);
}

PartBuffers cut_memory(std::span<std::byte> memory) {
  const size_t of_many = memory.size() / (kUploadStreams + 1);
  return {memory, of_many >= kPartBytes ? of_many : memory.size()};
}

Answer put_object(Client& client, const std::string& name, std::span<const std::byte> bytes,
                  const std::map<std::string, std::string>& headers, std::initializer_list<int> accepted) {
  Call call{"put", "PUT", name, {}, headers, bytes, false};
  if (client.place().checksums) call.headers[kChecksum] = crc32c_base64(bytes);
  return client.call(call, accepted);
}

MultipartWriter::MultipartWriter(Client& client, std::string name, const PartBuffers& buffers)
    : client_(client), name_(std::move(name)), part_bytes_(buffers.bytes) {
  std::span<std::byte> memory = buffers.memory;
  if (memory.empty()) {
    own_.reset(new std::byte[buffers.count() * part_bytes_]);
    expect_large_pages({own_.get(), buffers.count() * part_bytes_});
    memory = {own_.get(), buffers.count() * part_bytes_};
  }
  for (size_t i = buffers.count(); i > 0; --i)
    spare_.push_back(memory.subspan((i - 1) * part_bytes_, part_bytes_));
  TANDEM_CHECK(!spare_.empty());
}

MultipartWriter::~MultipartWriter() {
  join_all();
  if (!finished_) take_back();
}

void MultipartWriter::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> dst = room(bytes.size());
    std::memcpy(dst.data(), bytes.data(), dst.size());
    add(dst.size());
    bytes = bytes.subspan(dst.size());
  }
}

std::span<std::byte> MultipartWriter::room(size_t most) {
  TANDEM_CHECK(!finished_);
  if (!buffer_.empty() && filled_ == buffer_.size())
    send_buffer();  // there is something behind it: what fits into one part needs no upload
  if (buffer_.empty()) buffer_ = take_buffer();
  return buffer_.subspan(filled_, std::min(most, buffer_.size() - filled_));
}

void MultipartWriter::add(size_t bytes) {
  TANDEM_CHECK(bytes <= buffer_.size() - filled_);
  if (client_.place().checksums) crc_ = crc32c(buffer_.subspan(filled_, bytes), crc_);
  filled_ += bytes;
  bytes_ += static_cast<int64_t>(bytes);
}

// Waits for a part to be sent where all are under way.
std::span<std::byte> MultipartWriter::take_buffer() {
  std::span<std::byte> buffer;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !spare_.empty(); });
    if (failure_) std::rethrow_exception(failure_);
    buffer = spare_.back();
    spare_.pop_back();
  }
  join_done();
  return buffer;
}

void MultipartWriter::send_buffer() {
  if (id_.empty()) {
    Call call{"begin an upload", "POST", name_, {{"uploads", ""}}, {}, {}, false};
    if (client_.place().checksums) call.headers["x-amz-checksum-algorithm"] = "CRC32C";
    const Answer answer = client_.call(call);
    try {
      id_ = parse_upload_id(answer.body);
    } catch (const DataError& error) {
      throw IoError("{}: cannot begin an upload: {}", client_.address(name_), error.what());
    }
  }
  if (num_sent_ >= kMostParts) {
    throw IoError("{}: cannot put: more than {} parts of {}", client_.address(name_), kMostParts,
                  format_bytes(static_cast<int64_t>(part_bytes_)));
  }
  const int number = ++num_sent_;
  Stream& stream = streams_.emplace_back();
  stream.thread = std::thread([this, &stream, number, buffer = buffer_, bytes = filled_, crc = crc_] {
    std::exception_ptr failure;
    try {
      send_part(number, buffer.first(bytes), crc);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (failure && !failure_) failure_ = failure;
    spare_.push_back(buffer);
    stream.done = true;
    changed_.notify_all();
  });
  buffer_ = {};
  filled_ = 0;
  crc_ = 0;
}

void MultipartWriter::send_part(int number, std::span<const std::byte> bytes, uint32_t crc) {
  Part part{number, {}, {}};
  Call call{"put a part", "PUT", name_, {{"partNumber", std::to_string(number)}, {"uploadId", id_}},
            {},           bytes, false};
  if (client_.place().checksums) call.headers[kChecksum] = part.checksum = crc32c_base64(crc);
  const Answer answer = client_.call(call);
  part.etag = answer.header("etag");
  if (part.etag.empty())
    throw IoError("{}: cannot put a part: the answer has no ETag", client_.address(name_));
  const std::lock_guard lock(mutex_);
  parts_.push_back(std::move(part));
}

void MultipartWriter::join_done() {
  std::list<Stream> done;
  {
    const std::lock_guard lock(mutex_);
    for (auto next = streams_.begin(); next != streams_.end();) {
      const auto stream = next++;
      if (stream->done) done.splice(done.end(), streams_, stream);
    }
  }
  for (Stream& stream : done) stream.thread.join();
}

void MultipartWriter::join_all() {
  for (Stream& stream : streams_) stream.thread.join();
  streams_.clear();
}

void MultipartWriter::finish() {
  TANDEM_CHECK(!finished_);
  if (num_sent_ == 0) {
    put_object(client_, name_, buffer_.first(filled_));
  } else {
    if (filled_ > 0) send_buffer();
    join_all();
    if (failure_) std::rethrow_exception(failure_);
    complete();
  }
  finished_ = true;
}

void MultipartWriter::complete() {
  std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.number < b.number; });
  TANDEM_CHECK(static_cast<int>(parts_.size()) == num_sent_);
  std::string body = "<CompleteMultipartUpload>";
  for (const Part& part : parts_) {
    const std::string checksum =
        part.checksum.empty() ? "" : fmt::format("<ChecksumCRC32C>{}</ChecksumCRC32C>", part.checksum);
    body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag>{}</Part>", part.number,
                        xml_escaped(part.etag), checksum);
  }
  body += "</CompleteMultipartUpload>";
  client_.call({"complete the upload",
                "POST",
                name_,
                {{"uploadId", id_}},
                {{"content-type", "application/xml"}},
                std::as_bytes(std::span(body)),
                false},
               {404});
  // The answer to a first try may have been lost: then the upload is no more, and the object is there.
  const Answer head = client_.call({"look for", "HEAD", name_}, {404});
  const std::optional<int64_t> length = parse_length(head.header("content-length"));
  if (head.status == 404 || length != bytes_) {
    throw IoError("{}: cannot complete the upload: expected an object of {} bytes, found {}",
                  client_.address(name_), bytes_,
                  head.status == 404 ? "none" : fmt::format("{}", length.value_or(-1)));
  }
}

void MultipartWriter::take_back() noexcept {
  if (id_.empty()) return;
  try {
    client_.call({"give up an upload", "DELETE", name_, {{"uploadId", id_}}}, {404});
  } catch (const std::exception&) {  // then it is a leftover
  }
}

}  // namespace tandem::s3
