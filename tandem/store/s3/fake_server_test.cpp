#include "tandem/store/s3/fake_server_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/store/s3/answers.h"
#include "tandem/store/s3/xml.h"

namespace tandem::s3 {
namespace {

constexpr int kPageKeys = 3;  // so that every list has several pages

std::map<std::string, std::string> parse_query(const std::string& text) {
  std::map<std::string, std::string> query;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('&', at), text.size());
    const std::string pair = text.substr(at, end - at);
    const size_t equals = std::min(pair.find('='), pair.size());
    query[url_decoded(pair.substr(0, equals))] = url_decoded(pair.substr(std::min(equals + 1, pair.size())));
    at = end + 1;
  }
  return query;
}

std::string error_body(const char* code) {
  return fmt::format("<?xml version=\"1.0\"?><Error><Code>{}</Code><Message>for a test</Message></Error>",
                     code);
}

std::string etag_of(const std::string& bytes) {
  return fmt::format("\"{:016x}\"", std::hash<std::string>{}(bytes));
}

bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// Reads one request; false where the connection has ended.
bool receive(int connection, std::string& buffer, SeenRequest& request) {
  const auto more = [&] {
    char bytes[65536];
    const ssize_t received = ::recv(connection, bytes, sizeof(bytes), 0);
    if (received > 0) buffer.append(bytes, static_cast<size_t>(received));
    return received > 0;
  };
  size_t end = 0;
  while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
    if (!more()) return false;
  }
  const std::string head = buffer.substr(0, end + 2);
  buffer.erase(0, end + 4);
  const size_t line_end = head.find("\r\n");
  const std::string line = head.substr(0, line_end);
  const size_t space = line.find(' ');
  request.method = line.substr(0, space);
  const std::string target = line.substr(space + 1, line.rfind(' ') - space - 1);
  const size_t mark = std::min(target.find('?'), target.size());
  request.path = target.substr(0, mark);
  request.query = target.substr(std::min(mark + 1, target.size()));
  for (size_t at = line_end + 2; at < head.size();) {
    const size_t next = head.find("\r\n", at);
    std::string field = head.substr(at, next - at);
    const size_t colon = field.find(':');
    std::string name = field.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    request.headers[name] = field.substr(std::min(field.find_first_not_of(' ', colon + 1), field.size()));
    at = next + 2;
  }
  const std::string length = request.headers["content-length"];
  const auto bytes = static_cast<size_t>(parse_length(length).value_or(0));
  while (buffer.size() < bytes) {
    if (!more()) return false;
  }
  request.body = buffer.substr(0, bytes);
  buffer.erase(0, bytes);
  return true;
}

}  // namespace

FakeServer::FakeServer() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  TANDEM_CHECK(::bind(listener_, plain, length) == 0 && ::listen(listener_, 64) == 0);
  TANDEM_CHECK(::getsockname(listener_, plain, &length) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { serve(); });
}

FakeServer::~FakeServer() {
  ending_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  {
    const std::lock_guard lock(mutex_);
    for (const int connection : connections_) ::shutdown(connection, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
  for (const int connection : connections_) ::close(connection);
}

std::string FakeServer::url() const { return fmt::format("http://127.0.0.1:{}", port_); }

Environment FakeServer::environment() const {
  const std::map<std::string, std::string> variables = {{"AWS_ENDPOINT_URL", url()},
                                                        {"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"},
                                                        {"AWS_SECRET_ACCESS_KEY", "secret-of-the-test"},
                                                        {"AWS_EC2_METADATA_DISABLED", "true"}};
  return {[variables](const std::string& name) {
            const auto found = variables.find(name);
            return found != variables.end() ? found->second : std::string();
          },
          [](const std::string&) -> std::optional<std::string> { return std::nullopt; },
          [] { return int64_t{1'800'000'000}; }};
}

std::shared_ptr<S3Store> FakeServer::store(const std::string& address, size_t part_bytes) const {
  using std::chrono::milliseconds;
  const TimeLimits limits{milliseconds(2000), milliseconds(5000), milliseconds(800)};
  return std::make_shared<S3Store>(address, StorageOptions{}, environment(), limits,
                                   Retries{6, milliseconds(1), milliseconds(8)}, PartBuffers{{}, part_bytes});
}

void FakeServer::set_trouble(std::function<Trouble(int, const SeenRequest&)> trouble) {
  const std::lock_guard lock(mutex_);
  trouble_ = std::move(trouble);
  num_requests_ = 0;
}

void FakeServer::set_page(const std::string& method_and_path, const std::string& body) {
  const std::lock_guard lock(mutex_);
  pages_[method_and_path] = body;
}

std::vector<SeenRequest> FakeServer::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

std::map<std::string, std::string> FakeServer::objects() const {
  const std::lock_guard lock(mutex_);
  return objects_;
}

size_t FakeServer::num_uploads() const {
  const std::lock_guard lock(mutex_);
  return uploads_.size();
}

void FakeServer::serve() {
  for (;;) {
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (ending_ || connection < 0) {
      if (connection >= 0) ::close(connection);
      return;
    }
    const std::lock_guard lock(mutex_);
    connections_.push_back(connection);
    threads_.emplace_back([this, connection] { talk(connection); });
  }
}

void FakeServer::talk(int connection) {
  std::string buffer;
  for (SeenRequest request; receive(connection, buffer, request); request = {}) {
    if (!answer(connection, request)) break;
  }
  ::shutdown(connection, SHUT_RDWR);
}

bool FakeServer::answer(int connection, const SeenRequest& request) {
  Trouble trouble = Trouble::None;
  {
    const std::lock_guard lock(mutex_);
    seen_.push_back(request);
    const int number = num_requests_++;
    if (trouble_) trouble = trouble_(number, request);
    if (trouble == Trouble::ErrorInGood && request.method != "POST") trouble = Trouble::None;
  }
  if (trouble == Trouble::CutBefore) return false;
  Reply reply;
  switch (trouble) {
    case Trouble::Internal: reply = {500, {}, error_body("InternalError")}; break;
    case Trouble::SlowDown: reply = {503, {}, error_body("SlowDown")}; break;
    case Trouble::Expired: reply = {400, {}, error_body("ExpiredToken")}; break;
    case Trouble::BadXml: reply = {200, {}, "<ListBucketResult><Contents></Wrong>"}; break;
    case Trouble::ErrorInGood: reply = {200, {}, error_body("InternalError")}; break;
    default: reply = handle(request);
  }
  if (trouble == Trouble::CutAfter) return false;
  for (int i = 0; trouble == Trouble::Late && i < 100 && !ending_; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::string body = request.method == "HEAD" ? "" : reply.body;
  if (trouble == Trouble::ShortLength) body = body.substr(0, body.size() / 2);
  const size_t length = request.method == "HEAD" ? reply.body.size() : body.size();
  std::string head = fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n", reply.status, length);
  for (const auto& [name, value] : reply.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (trouble == Trouble::CutHalf) {
    send_all(connection, head + "\r\n" + body.substr(0, body.size() / 2));
    return false;
  }
  return send_all(connection, head + "\r\n" + body);
}

FakeServer::Reply FakeServer::handle(const SeenRequest& request) {
  const std::lock_guard lock(mutex_);
  const auto page = pages_.find(request.method + " " + request.path);
  if (page != pages_.end()) return {200, {}, page->second};
  const auto authorization = request.headers.find("authorization");
  if (authorization == request.headers.end() ||
      !authorization->second.starts_with("AWS4-HMAC-SHA256 Credential="))
    return {403, {}, error_body("AccessDenied")};
  const std::string path = url_decoded(request.path.substr(1));  // "bucket/key"
  const size_t slash = path.find('/');
  if (slash == std::string::npos || slash + 1 == path.size()) return list(request);
  const auto query = parse_query(request.query);
  if (query.contains("uploads") || query.contains("uploadId")) return handle_upload(request, path);
  return handle_object(request, path);
}

FakeServer::Reply FakeServer::handle_object(const SeenRequest& request, const std::string& key) {
  if (request.method == "PUT") {
    if (request.headers.contains("if-none-match") && objects_.contains(key))
      return {412, {}, error_body("PreconditionFailed")};
    objects_[key] = request.body;
    return {200, {{"ETag", etag_of(request.body)}}, ""};
  }
  if (request.method == "DELETE") {
    objects_.erase(key);
    return {204, {}, ""};
  }
  return get(request, key);
}

FakeServer::Reply FakeServer::get(const SeenRequest& request, const std::string& key) const {
  const auto object = objects_.find(key);
  if (object == objects_.end()) return {404, {}, error_body("NoSuchKey")};
  const std::string& bytes = object->second;
  Reply reply{200, {{"ETag", etag_of(bytes)}}, bytes};
  const auto match = request.headers.find("if-match");
  if (match != request.headers.end() && match->second != etag_of(bytes))
    return {412, {}, error_body("PreconditionFailed")};
  const auto range = request.headers.find("range");
  if (range == request.headers.end()) return reply;
  size_t first = 0, last = 0;
  if (std::sscanf(range->second.c_str(), "bytes=%zu-%zu", &first, &last) != 2 || last >= bytes.size())
    return {416, {}, error_body("InvalidRange")};
  reply.status = 206;
  reply.body = bytes.substr(first, last - first + 1);
  reply.headers["Content-Range"] = fmt::format("bytes {}-{}/{}", first, last, bytes.size());
  return reply;
}

FakeServer::Reply FakeServer::handle_upload(const SeenRequest& request, const std::string& key) {
  auto query = parse_query(request.query);
  if (query.contains("uploads")) {
    const std::string id = fmt::format("id/{}+&", next_upload_++);  // has to be encoded
    uploads_[id] = {key, {}};
    return {
        200,
        {},
        fmt::format("<InitiateMultipartUploadResult><UploadId>{}</UploadId></InitiateMultipartUploadResult>",
                    xml_escaped(id))};
  }
  const auto upload = uploads_.find(query["uploadId"]);
  if (upload == uploads_.end()) return {404, {}, error_body("NoSuchUpload")};
  if (request.method == "PUT") {
    upload->second.second[std::stoi(query["partNumber"])] = request.body;
    return {200, {{"ETag", etag_of(request.body)}}, ""};
  }
  if (request.method == "POST") {
    std::string whole;
    int expected = 1;
    for (const XmlElement& part : parse_xml(request.body).children) {
      const std::string& bytes = upload->second.second[expected];
      if (part.text_of("PartNumber") != std::to_string(expected++) || part.text_of("ETag") != etag_of(bytes))
        return {400, {}, error_body("InvalidPart")};
      whole += bytes;
    }
    objects_[key] = whole;
    uploads_.erase(upload);
    return {200, {}, "<CompleteMultipartUploadResult/>"};
  }
  uploads_.erase(upload);
  return {204, {}, ""};
}

FakeServer::Reply FakeServer::list(const SeenRequest& request) const {
  auto query = parse_query(request.query);
  const std::string bucket = url_decoded(request.path.substr(1)) + "/";
  if (query.contains("uploads")) {
    std::string body = "<ListMultipartUploadsResult>";
    for (const auto& [id, upload] : uploads_) {
      body += fmt::format("<Upload><Key>{}</Key><UploadId>{}</UploadId></Upload>",
                          xml_escaped(upload.first.substr(bucket.size())), xml_escaped(id));
    }
    return {200, {}, body + "<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"};
  }
  std::string body =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
      "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><EncodingType>url</EncodingType>";
  int count = 0;
  std::string last;
  bool more = false;
  for (const auto& [full, bytes] : objects_) {
    if (!full.starts_with(bucket + query["prefix"])) continue;
    const std::string key = full.substr(bucket.size());
    if (!query["continuation-token"].empty() && key <= query["continuation-token"]) continue;
    more = count++ == kPageKeys;
    if (more) break;
    last = key;
    body += fmt::format(
        "<Contents><Key>{}</Key><LastModified>2026-11-18T05:07:20.000Z</LastModified>"
        "<Size>{}</Size></Contents>",
        url_encoded(key), bytes.size());
  }
  body += fmt::format("<IsTruncated>{}</IsTruncated>", more);
  if (more) body += fmt::format("<NextContinuationToken>{}</NextContinuationToken>", xml_escaped(last));
  return {200, {}, body + "</ListBucketResult>"};
}

}  // namespace tandem::s3
