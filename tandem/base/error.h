// Errors. What a user or the world can cause is a typed exception whose one-line message starts with
// the thing at fault and says what was expected, what was found and what to do; its exit code is the
// one promised in docs/interface.md. What only a bug can cause is TANDEM_CHECK.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace tandem {

enum class ExitCode : int {
  Done = 0,
  Failed = 1,
  BadUsage = 2,
  DoesNotFit = 3,
  BadData = 4,
  Interrupted = 75
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

// A typed error takes a format string: `throw DataError("{}: no such file", path)`.
template <ExitCode kCode, int kTag>
class TypedError : public Error {
 public:
  template <typename... Args>
  explicit TypedError(fmt::format_string<Args...> format, Args&&... args)
      : Error(kCode, fmt::format(format, std::forward<Args>(args)...)) {}
};

using ConfigError = TypedError<ExitCode::BadUsage, 0>;  // config file, flag or --set
using PlanError = TypedError<ExitCode::DoesNotFit, 1>;  // does not fit in memory
using DataError = TypedError<ExitCode::BadData, 2>;     // data set or checkpoint contents
using IoError = TypedError<ExitCode::Failed, 3>;        // disk, file system
using CommError = TypedError<ExitCode::Failed, 4>;      // a peer or the network
using DeviceError = TypedError<ExitCode::Failed, 5>;    // CPU or GPU lacks or refuses something

using TrainError = TypedError<ExitCode::Failed, 6>;         // training itself went wrong: it diverged
using Interruption = TypedError<ExitCode::Interrupted, 7>;  // a signal, before there was anything to save
using ListenError = TypedError<ExitCode::Failed, 8>;        // a port of this machine that cannot be served

// A bug in Tandem itself.
class BugError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* file, int line, const char* condition, const std::string& detail);

}  // namespace tandem

// TANDEM_CHECK(condition) or TANDEM_CHECK(condition, "format {}", value).
#define TANDEM_CHECK(condition, ...)                                                             \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::tandem::fail_check(__FILE__, __LINE__, #condition, ::tandem::check_detail(__VA_ARGS__)); \
  } while (false)

namespace tandem {
inline std::string check_detail() { return {}; }
template <typename... Args>
std::string check_detail(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
}  // namespace tandem
