#include "tandem/ir/ops/operands.h"

#include "tandem/ir/infer.h"

namespace tandem {

Shape Operands::shape_attr() const { return parse_shape(attrs_.text("shape")); }

void Operands::require_types(std::initializer_list<TensorType> expected) const {
  size_t i = 0;
  for (const TensorType& type : expected) {
    const TensorType& found = in_[i++];
    require(found == type, "expected {} {}, found {} {}", dtype_name(type.dtype), to_string(type.shape),
            dtype_name(found.dtype), to_string(found.shape));
  }
}

TensorType Operands::same(size_t a, size_t b) const {
  require(in_[a] == in_[b], "operands differ: {} {} and {} {}", dtype_name(in_[a].dtype), show(a),
          dtype_name(in_[b].dtype), show(b));
  return in_[a];
}

TensorType Operands::with_last(size_t i, int64_t last) const {
  std::vector<int64_t> dims = in_[i].shape.dims();
  dims.back() = last;
  return {in_[i].dtype, Shape(dims)};
}

TensorType Operands::half(size_t i) const {
  require(in_[i].shape.last() % 2 == 0, "last dim of {} must be even (gate and up side by side)", show(i));
  return with_last(i, in_[i].shape.last() / 2);
}

TensorType Operands::image(size_t i) const {
  require(in_[i].shape.rank() == 4, "expected an image batch [B,H,W,C], found {}", show(i));
  return in_[i];
}

TensorType Operands::row_stats(size_t i) const {
  return {stats_dtype(in_[i].dtype), Shape({in_[i].shape.rows()})};
}

TensorType Operands::channel_stats(size_t i) const {
  return {stats_dtype(in_[i].dtype), Shape({in_[i].shape.last()})};
}

std::pair<int64_t, int64_t> Operands::product(size_t a, size_t b) const {
  const Shape& sa = in_[a].shape;
  const Shape& sb = in_[b].shape;
  const bool ta = attr("trans_a") != 0, tb = attr("trans_b") != 0;
  const int64_t m = ta ? sa.last() : sa.rows(), ka = ta ? sa.rows() : sa.last();
  const int64_t n = tb ? sb.rows() : sb.last(), kb = tb ? sb.last() : sb.rows();
  require(ka == kb, "inner sizes differ: {} of {} and {} of {}", ka, to_string(sa), kb, to_string(sb));
  return {m, n};
}

}  // namespace tandem
