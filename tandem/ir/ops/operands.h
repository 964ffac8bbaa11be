// The operands of a node while its output types are worked out, and what the rules of several groups ask of
// them. A question that the operands do not fit throws ConfigError starting with the op's name.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/ir/graph.h"

namespace tandem {

class Operands {
 public:
  Operands(Op op, std::span<const TensorType> in, const Attrs& attrs) : op_(op), in_(in), attrs_(attrs) {}

  const TensorType& operator[](size_t i) const { return in_[i]; }
  size_t size() const { return in_.size(); }
  std::span<const TensorType> all() const { return in_; }
  const Shape& shape(size_t i) const { return in_[i].shape; }
  std::string show(size_t i) const { return to_string(in_[i].shape); }

  int64_t attr(std::string_view name) const { return attrs_.integer(name); }
  int64_t attr_or(std::string_view name, int64_t fallback) const { return attrs_.integer_or(name, fallback); }
  const std::string& attr_text(std::string_view name) const { return attrs_.text(name); }
  bool is_set(std::string_view name) const { return attrs_.integer_or(name, 0) != 0; }
  bool has(std::string_view name) const { return attrs_.has(name); }
  DType dtype_attr() const { return parse_dtype(attrs_.text("dtype")); }
  Shape shape_attr() const;

  template <typename... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (!condition)
      throw ConfigError("{}: {}", op_name(op_), fmt::format(format, std::forward<Args>(args)...));
  }
  void require_types(std::initializer_list<TensorType> expected) const;  // of the first inputs

  TensorType same(size_t a, size_t b) const;                      // the type that both have
  TensorType with_last(size_t i, int64_t last) const;             // input i with another last dim
  TensorType half(size_t i) const;                                // one of two halves of the last dim
  TensorType image(size_t i) const;                               // input i, which must be [B,H,W,C]
  TensorType row_stats(size_t i) const;                           // [N]
  TensorType channel_stats(size_t i) const;                       // [C]
  std::pair<int64_t, int64_t> product(size_t a, size_t b) const;  // rows and columns of op(a) op(b)

 private:
  Op op_;
  std::span<const TensorType> in_;
  const Attrs& attrs_;
};

// Statistics, loss sums and partial sums are wider than the tensors they are of.
inline DType stats_dtype(DType storage) { return storage == DType::F64 ? DType::F64 : DType::F32; }

}  // namespace tandem
