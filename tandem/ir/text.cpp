#include "tandem/ir/text.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <map>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 4> kPhases = {"forward", "recompute", "backward", "update"};

std::string print_type(const TensorType& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), to_string(type.shape));
}

std::string print_attr(const AttrValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return fmt::format("{}", *whole);
  if (const auto* text = std::get_if<std::string>(&value)) return fmt::format("\"{}\"", *text);
  std::string real = fmt::format("{}", std::get<double>(value));
  if (real.find_first_of(".eni") == std::string::npos) real += ".0";  // keep it a real when parsed back
  return real;
}

// A cursor over one line.
class Line {
 public:
  Line(std::string_view text, int number) : text_(text), number_(number) {}

  bool take(std::string_view token) {
    skip_space();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("expected '{}'", token));
  }
  bool done() {
    skip_space();
    return at_ == text_.size();
  }
  std::string word() {
    skip_space();
    const size_t start = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    if (start == at_) fail("expected a name");
    return std::string(text_.substr(start, at_ - start));
  }
  int64_t integer() {
    skip_space();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("expected a whole number");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  std::string quoted() {
    expect("\"");
    const size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) fail("missing closing quote");
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }
  AttrValue attr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '"') return quoted();
    const size_t end = std::min(text_.find_first_of(",}", at_), text_.size());
    const std::string_view token = text_.substr(at_, end - at_);
    at_ = end;
    int64_t whole = 0;
    auto [stop, error] = std::from_chars(token.data(), token.data() + token.size(), whole);
    if (error == std::errc() && stop == token.data() + token.size()) return whole;
    double real = 0;
    const auto parsed = std::from_chars(token.data(), token.data() + token.size(), real);
    if (parsed.ec != std::errc() || parsed.ptr != token.data() + token.size())
      fail("expected an attribute value");
    return real;
  }
  TensorType type() {
    const std::string dtype = word();
    expect("[");
    std::vector<int64_t> dims;
    if (!take("]")) {
      do dims.push_back(integer());
      while (take(","));
      expect("]");
    }
    return {parse_dtype(dtype), Shape(dims)};
  }
  [[noreturn]] void fail(std::string_view what) {
    throw ConfigError("graph text, line {}: {} at '{}'", number_, what,
                      text_.substr(std::min(at_, text_.size())));
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  std::string_view text_;
  int number_;
  size_t at_ = 0;
};

Value lookup(const std::map<int64_t, Value>& values, Line& line) {
  line.expect("%");
  const auto it = values.find(line.integer());
  if (it == values.end()) line.fail("unknown value");
  return it->second;
}

void parse_node(Line& line, Graph& graph, std::map<int64_t, Value>& values) {
  std::vector<int64_t> results;
  do {
    line.expect("%");
    results.push_back(line.integer());
  } while (line.take(","));
  line.expect("=");
  Node node{};
  node.op = parse_op(line.word());
  if (is_leaf(node.op)) {
    node.name = line.quoted();
  } else {
    line.expect("(");
    if (!line.take(")")) {
      do node.inputs.push_back(lookup(values, line));
      while (line.take(","));
      line.expect(")");
    }
  }
  if (line.take("{")) {
    do {
      const std::string key = line.word();
      line.expect("=");
      node.attrs.set(key, line.attr());
    } while (line.take(","));
    line.expect("}");
  }
  if (line.take("block")) node.block = static_cast<int32_t>(line.integer());
  for (size_t phase = 1; phase < kPhases.size(); ++phase) {
    if (line.take(kPhases[phase])) node.phase = static_cast<Phase>(phase);
  }
  if (line.take(":")) {
    do node.outputs.push_back(line.type());
    while (line.take(","));
  } else if (!is_leaf(node.op)) {
    node.outputs = infer_outputs(node.op, input_types(graph, node), node.attrs);
  }
  if (!line.done()) line.fail("unexpected text");
  if (node.outputs.size() != results.size()) line.fail("as many results as types expected");
  const Value first = graph.add(std::move(node));
  for (size_t i = 0; i < results.size(); ++i) values[results[i]] = {first.node, static_cast<int32_t>(i)};
}

}  // namespace

std::string print(const Graph& graph) {
  std::string text;
  std::map<Value, int> numbers;
  const auto number = [&](Value value) { return fmt::format("%{}", numbers.at(value)); };
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    std::vector<std::string> results, inputs, attrs, types;
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      const int next = static_cast<int>(numbers.size());
      numbers[{id, i}] = next;
      results.push_back(number({id, i}));
      types.push_back(print_type(node.outputs[static_cast<size_t>(i)]));
    }
    for (Value input : node.inputs) inputs.push_back(number(input));
    for (const auto& [key, value] : node.attrs.items())
      attrs.push_back(fmt::format("{}={}", key, print_attr(value)));
    text += fmt::format("{} = {}", fmt::join(results, ", "), op_name(node.op));
    text +=
        is_leaf(node.op) ? fmt::format(" \"{}\"", node.name) : fmt::format("({})", fmt::join(inputs, ", "));
    if (!attrs.empty()) text += fmt::format(" {{{}}}", fmt::join(attrs, ", "));
    if (node.block != kNoBlock) text += fmt::format(" block {}", node.block);
    if (node.phase != Phase::Forward) text += fmt::format(" {}", kPhases[static_cast<size_t>(node.phase)]);
    text += fmt::format(" : {}\n", fmt::join(types, ", "));
  }
  for (const GraphOutput& output : graph.outputs()) {
    text += fmt::format("output \"{}\" {}\n", output.name, number(output.value));
  }
  return text;
}

Graph parse_graph(std::string_view text) {
  Graph graph;
  std::map<int64_t, Value> values;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    Line line(text.substr(0, end), ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.done()) continue;
    if (line.take("output")) {
      std::string name = line.quoted();
      graph.add_output(std::move(name), lookup(values, line));
    } else {
      parse_node(line, graph, values);
    }
  }
  return graph;
}

}  // namespace tandem
