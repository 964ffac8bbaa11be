#include "tandem/ir/op.h"

#include <array>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(kNumOps)> kNames = {"input",
                                                                               "param",
                                                                               "state",
                                                                               "matmul",
                                                                               "matmul_gelu",
                                                                               "matmul_acc",
                                                                               "matmul_bias_acc",
                                                                               "matmul_gelu_grad",
                                                                               "conv2d",
                                                                               "conv2d_grad_input",
                                                                               "conv2d_grad_weight",
                                                                               "bias_grad",
                                                                               "fp8_scales",
                                                                               "fp8_weight_scales",
                                                                               "fp8_quantize",
                                                                               "fp8_swiglu",
                                                                               "fp8_swiglu_grad",
                                                                               "fp8_matmul",
                                                                               "fp8_matmul_acc",
                                                                               "fp8_ranges",
                                                                               "layer_norm",
                                                                               "add_layer_norm",
                                                                               "layer_norm_grad",
                                                                               "rms_norm",
                                                                               "add_rms_norm",
                                                                               "rms_norm_grad",
                                                                               "batch_norm",
                                                                               "batch_norm_infer",
                                                                               "batch_norm_grad",
                                                                               "batch_norm_stats",
                                                                               "batch_norm_apply",
                                                                               "batch_norm_grad_stats",
                                                                               "batch_norm_grad_apply",
                                                                               "group_norm",
                                                                               "group_norm_grad",
                                                                               "rope",
                                                                               "rope_grad",
                                                                               "attention",
                                                                               "attention_grad",
                                                                               "add",
                                                                               "scale",
                                                                               "gelu",
                                                                               "gelu_grad",
                                                                               "relu",
                                                                               "relu_grad",
                                                                               "swiglu",
                                                                               "swiglu_grad",
                                                                               "concat",
                                                                               "slice",
                                                                               "reshape",
                                                                               "view",
                                                                               "join",
                                                                               "zeros",
                                                                               "cast",
                                                                               "max_pool2d",
                                                                               "max_pool2d_grad",
                                                                               "global_avg_pool",
                                                                               "global_avg_pool_grad",
                                                                               "embedding",
                                                                               "embedding_grad",
                                                                               "position_grad",
                                                                               "cross_entropy",
                                                                               "cross_entropy_grad",
                                                                               "linear_cross_entropy",
                                                                               "linear_cross_entropy_grad",
                                                                               "vocab_parts",
                                                                               "vocab_loss",
                                                                               "vocab_loss_grad",
                                                                               "add_stats",
                                                                               "square_sums",
                                                                               "global_norm",
#define TANDEM_NAME(type, name) #name,
                                                                               TANDEM_OPTIMIZERS(TANDEM_NAME)
#undef TANDEM_NAME
                                                                                   "scale_loss",
                                                                               "unscale_hyper",
                                                                               "next_loss_scale",
                                                                               "all_gather",
                                                                               "reduce_scatter",
                                                                               "all_reduce",
                                                                               "send",
                                                                               "recv",
                                                                               "copy"};

}  // namespace

std::string_view op_name(Op op) { return kNames[static_cast<size_t>(op)]; }

Op parse_op(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Op>(i);
  }
  throw ConfigError("op '{}': no such op", name);
}

}  // namespace tandem
