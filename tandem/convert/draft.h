// The config that is being made, and what its reader should know of how it came about.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/convert/document.h"

namespace tandem::convert {

enum class FindingKind {
  Lost,     // a key of the file that nothing of ours stands for
  Assumed,  // a value of ours that the file does not give by itself
  ToDo,     // a key of ours that the reader has to give
};

struct Finding {
  FindingKind kind;
  std::string key, value, text;
};
std::string to_string(const Finding& finding);  // one line

class Draft {
 public:
  bool has(std::string_view key) const { return values_.contains(key); }
  bool hinted(std::string_view key) const { return hints_.contains(key); }
  const Value* get(std::string_view key) const;

  void set(std::string_view key, Value value);  // a key of ours; the last one wins
  void erase(std::string_view key);
  // A line that is there as a comment, for the reader to fill in.
  void hint(std::string_view key, std::string value, std::string why);
  void lost(std::string key, const Value& value, std::string_view why);
  void assumed(std::string_view key, const Value& value, std::string_view why);  // of ours; sets it, too

  std::string yaml() const;  // in the order of docs/config.md
  const std::vector<Finding>& findings() const { return findings_; }
  size_t num_keys() const { return values_.size(); }

 private:
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, std::string, std::less<>> hints_;
  std::vector<Finding> findings_;
};

}  // namespace tandem::convert
