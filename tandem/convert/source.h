// A part of another program's config file that is being read, and typed looks into it. What has another type
// than it should is a ConfigError that names file and key.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tandem/convert/document.h"

namespace tandem::convert {

// What has no value of its own: null, false, "", [], {}, "no", "none", and a table with `enabled: false`.
bool says_nothing(const Value& value);
bool is_auto(const Value& value);  // "auto": another file gives it

std::string text_of(const Value& value);  // for a message: short, one line

class Source {
 public:
  // `at` is where the table is in the file, "" for all of it.
  Source(std::string file, const Value& root, std::string at = "")
      : file_(std::move(file)), at_(std::move(at)), root_(root) {}

  // The value of a key such as "zero_optimization.stage"; null where it is absent, null or "auto".
  const Value* find(std::string_view key) const;
  std::optional<int64_t> whole(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  bool is_left_to_others(std::string_view key) const;  // "auto"
  bool is_on(std::string_view key) const { return flag(key).value_or(false); }

  std::string full(std::string_view key) const;  // the key from the top of the file
  const std::string& file() const { return file_; }
  const Value& root() const { return root_; }

 private:
  const Value* look(std::string_view key) const;
  std::string file_, at_;
  const Value& root_;
};

// A number that a file may have as text ("1e-5", as YAML 1.1 reads it); whole where it is.
std::optional<Value> as_number(const Value& value);

}  // namespace tandem::convert
