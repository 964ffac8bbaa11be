#include "tandem/config/yaml_shape.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>
#include <vector>

namespace tandem {
namespace {

constexpr size_t kMaxDepth = 8;

// Follows the events of the parser, and stops it by throwing the fault.
class Shape : public YAML::EventHandler {
 public:
  explicit Shape(size_t max_items) : max_items_(max_items) {}
  // yaml-cpp finds no end of documents behind a stray comma, so the second one is the last that is looked at.
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++num_documents_ < 2) return;
    throw YamlFault{mark.line + 1,
                    "expected one YAML document, found more behind it; remove it, or split the file", true};
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { item(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { item(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string& value) override {
    item(mark);
    if (value.size() <= kMaxValueBytes) return;
    throw YamlFault{mark.line + 1,
                    fmt::format("expected values of at most {} characters, found one of {}; shorten it",
                                kMaxValueBytes, value.size())};
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    enter(mark);
  }
  void OnSequenceEnd() override { items_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    enter(mark);
  }
  void OnMapEnd() override { items_.pop_back(); }

 private:
  void item(const YAML::Mark& mark) {
    if (items_.empty() || ++items_.back() <= max_items_) return;
    throw YamlFault{mark.line + 1,
                    fmt::format("expected lists of at most {} items, found more; shorten it", max_items_)};
  }
  void enter(const YAML::Mark& mark) {
    item(mark);
    items_.push_back(0);
    if (items_.size() <= kMaxDepth) return;
    throw YamlFault{mark.line + 1,
                    "expected `key: value` pairs in sections, found many levels of lists or keys "
                    "inside each other; write it flat"};
  }

  size_t max_items_;
  int num_documents_ = 0;
  std::vector<size_t> items_;  // so far, of each list or table that is open
};

}  // namespace

std::optional<YamlFault> find_yaml_fault(const std::string& text, size_t max_items) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Shape shape(max_items);
  try {
    while (parser.HandleNextDocument(shape)) {
    }
  } catch (const YamlFault& fault) {
    return fault;
  }
  return std::nullopt;
}

}  // namespace tandem
