#include "tandem/base/error.h"
#include "tandem/kernels/cpu/attention/attention.h"

#include <cmath>

namespace tandem::cpu::attention {

AttentionShape attention_shape(const TensorType& qkv, const Attrs& attrs) {
  AttentionShape shape;
  shape.batch = qkv.shape[0];
  shape.tokens = qkv.shape[1];
  shape.heads = attrs.integer("heads");
  shape.kv_heads = attrs.integer("kv_heads");
  shape.head_dim = qkv.shape[2] / (shape.heads + 2 * shape.kv_heads);
  shape.causal = attrs.integer_or("causal", 0) != 0;
  shape.window = std::min(shape.tokens, attrs.integer_or("window", shape.tokens));
  shape.scale =
      static_cast<float>(attrs.real_or("scale", 1.0 / std::sqrt(static_cast<double>(shape.head_dim))));
  shape.softcap = static_cast<float>(attrs.real_or("softcap", 0));
  shape.segmented = attrs.integer_or("segments", 0) != 0;
  return shape;
}

bool fast_attention_type(const TensorType& qkv, const Attrs& attrs) {
  if (qkv.dtype != DType::F32 && qkv.dtype != DType::BF16 && qkv.dtype != DType::F16) return false;
  if (qkv.shape.rank() != 3) return false;
  const int64_t heads = attrs.integer("heads");
  const int64_t kv_heads = attrs.integer("kv_heads");
  if (kv_heads <= 0 || heads % kv_heads != 0) return false;
  return qkv.shape[2] > 0 && qkv.shape[2] % (heads + 2 * kv_heads) == 0;
}

}  // namespace tandem::cpu::attention
