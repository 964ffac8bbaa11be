#include "tandem/store/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct Holder {
  std::string host;
  int64_t pid = 0;
  uint64_t start = 0;  // of the process, so that another of its number is not taken for it
  uint64_t count = 0;
  std::string space = {};  // where `pid` is one
};

// Since the machine's start, as the kernel counts; 0 where there is no such process.
uint64_t start_of(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  constexpr int kFieldsUpToStart = 20;
  for (int i = 0; i < kFieldsUpToStart; ++i) fields >> field;
  return std::strtoull(field.c_str(), nullptr, 10);
}

// Written in place, always as many bytes: whoever reads sees one count or the next.
std::string text_of(const Holder& holder) {
  return fmt::format("{} {} {} {:020} {}\n", holder.host, holder.pid, holder.start, holder.count,
                     holder.space);
}

std::string read_file(const fs::path& file) {  // opened each time: shared file systems look again then
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::optional<Holder> parse(const std::string& text) {
  Holder holder;
  std::istringstream fields(text);
  fields >> holder.host >> holder.pid >> holder.start >> holder.count;
  if (!fields) return std::nullopt;
  fields >> holder.space;  // older programs wrote none
  return holder;
}

Holder own(uint64_t count) { return {hostname(), ::getpid(), start_of(::getpid()), count, process_space()}; }

bool try_to_make(const fs::path& file) {
  const Descriptor fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (fd.get() < 0 && errno == EEXIST) return false;
  const std::string text = text_of(own(0));
  if (fd.get() < 0 || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw IoError("{}: cannot be written: {}", file.string(), std::strerror(errno));
  return true;
}

// One of this machine that runs, or one of another that counts.
bool lives(const fs::path& file, const std::string& seen, const LeaseTimes& times) {
  const std::optional<Holder> holder = parse(seen);
  // By its name alone, another machine of that name would look for a process of its own.
  if (holder && !holder->space.empty() && holder->space == process_space())
    return start_of(holder->pid) == holder->start;
  const double deadline = steady_s() + times.watch_s;
  while (steady_s() < deadline) {
    std::this_thread::sleep_for(std::chrono::duration<double>(times.watch_s / 30));
    if (read_file(file) != seen) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Lease> Lease::take(const fs::path& file, std::string& holder, LeaseTimes times) {
  while (!try_to_make(file)) {
    const std::string seen = read_file(file);
    if (lives(file, seen, times)) {
      const std::optional<Holder> other = parse(seen);
      holder = other ? fmt::format("process {} on {}", other->pid, other->host) : "another process";
      return nullptr;
    }
    // Two may find the same dead holder: the one that comes later sees another text by now.
    if (read_file(file) == seen) ::unlink(file.c_str());
  }
  return std::unique_ptr<Lease>(new Lease(file, times));
}

Lease::Lease(fs::path file, LeaseTimes times) : file_(std::move(file)), times_(times) {
  counter_ = std::thread([this] { count(); });
}

Lease::~Lease() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  counter_.join();
  ::unlink(file_.c_str());
}

void Lease::count() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::duration<double>(times_.count_s), [this] { return is_over_; })) {
    ++counted_;
    write();
  }
}

// A count that cannot be written is one that is missing: the next one is tried all the same.
void Lease::write() const {
  const Descriptor fd(::open(file_.c_str(), O_WRONLY | O_CLOEXEC));
  if (fd.get() < 0) return;
  const std::string text = text_of(own(counted_));
  [[maybe_unused]] const ssize_t written = ::pwrite(fd.get(), text.data(), text.size(), 0);
}

}  // namespace tandem
