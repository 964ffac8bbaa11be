// Stream sockets with a deadline on every wait, and the frames that the tcp store sends through them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

using Deadline = std::chrono::steady_clock::time_point;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void close();
  void shut_down();  // from any thread: whoever waits on it sees the end

 private:
  int fd_ = -1;
};

// One attempt. Returns a closed socket and says why in `problem` where it fails.
Socket connect_once(const std::string& host, int port, Deadline deadline, std::string* problem);

// Listens at the first address of `host` that is this machine's. Throws ListenError where the port is taken
// or none is.
Socket listen_at(const std::string& host, int port);

// Listens at every address of `host` that is this machine's, and at no other. With `from_elsewhere`, also at
// this machine's outer address where that is what others mean by the name: it leads to loopback here alone
// (Debian's installer puts 127.0.1.1 into /etc/hosts), or to an address that is translated on the way. A name
// that nobody knows yet, and that is this machine's with a domain behind it, is the machine's.
std::vector<Socket> listen_by_name(const std::string& host, int port, bool from_elsewhere);

std::string local_address(const Socket& socket);  // "10.0.0.2"
std::string peer_address(const Socket& socket);
int local_port(const Socket& socket);

// A frame: its length in four bytes, then fields, each with its length before it.
std::string encode_frame(const std::vector<std::string_view>& fields);
// Takes the first whole frame from the front of `bytes`. Throws CommError where it is no frame.
std::optional<std::vector<std::string>> take_frame(std::string& bytes);

// False where the other side has closed, an error came, or the time was over; errno says which (0: closed).
bool send_all(const Socket& socket, std::string_view bytes, Deadline deadline);
// Appends what is there, at most so many bytes.
bool receive_some(const Socket& socket, std::string& bytes, Deadline deadline, size_t most = 4096);

}  // namespace tandem
