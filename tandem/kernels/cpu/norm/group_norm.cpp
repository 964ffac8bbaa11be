// Group normalisation: an image is read into the caches once for its sums and once more for its result, by
// one task. Per-channel sums are folded into groups, and the groups' figures spread back over channels.
#include <cmath>

#include "tandem/kernels/cpu/conv/image_kernels.h"
#include "tandem/kernels/cpu/norm/batch_norm_passes.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kMaxParts = 64;

struct Cut {
  int64_t images, pixels, channels, groups, group_channels, part_images, num_parts;

  Cut(const Shape& x, const Attrs& attrs)
      : images(x[0]), pixels(x.rows() / x[0]), channels(x.last()), groups(attrs.integer("groups")) {
    TANDEM_CHECK(channels % groups == 0, "{} channels in {} groups", channels, groups);
    group_channels = channels / groups;
    part_images = ceil_div(images, kMaxParts);
    num_parts = ceil_div(images, part_images);
  }
};

// A part's workspace, a channel each: the sums of one image, the gradients of the part, and figures.
struct Scratch {
  double *first, *second, *dgamma, *dbeta;
  float *sums, *mean, *a, *b, *c;

  Scratch(std::span<std::byte> workspace, const Cut& cut, int64_t part) {
    const int64_t n = cut.channels;
    first = reinterpret_cast<double*>(workspace.data() + part * bytes(n));
    second = first + n, dgamma = second + n, dbeta = dgamma + n;
    sums = reinterpret_cast<float*>(dbeta + n);
    mean = sums + 2 * n, a = mean + n, b = a + n, c = b + n;
  }
  static int64_t bytes(int64_t channels) { return round_up(channels * 56, 64); }
};

size_t workspace(const CallSignature& call, int) {
  const Cut cut(call.in[0].shape, *call.attrs);
  return static_cast<size_t>(cut.num_parts * Scratch::bytes(cut.channels));
}

void normalise_image(const KernelArgs& args, const Cut& cut, int64_t image, const Scratch& scratch) {
  const TensorArg& x = args.in[0];
  const DType dtype = x.type.dtype;
  const int64_t at = image * cut.pixels * cut.channels;
  channel_moments(dtype, offset_elems(x.data, dtype, at), cut.pixels, cut.channels, scratch.sums,
                  scratch.first, scratch.second);
  const double count = static_cast<double>(cut.pixels);
  const double eps = args.attrs.real("eps");
  for (int64_t group = 0; group < cut.groups; ++group) {
    double* means = scratch.first + group * cut.group_channels;
    double* m2s = scratch.second + group * cut.group_channels;
    for (int64_t k = 1; k < cut.group_channels; ++k) {
      merge_moments(1, count * static_cast<double>(k), means, m2s, count, means + k, m2s + k);
    }
    const double rstd = 1 / std::sqrt(m2s[0] / (count * static_cast<double>(cut.group_channels)) + eps);
    args.out[1].as<float>()[image * cut.groups + group] = static_cast<float>(means[0]);
    args.out[2].as<float>()[image * cut.groups + group] = static_cast<float>(rstd);
    for (int64_t k = 0; k < cut.group_channels; ++k) {
      const int64_t c = group * cut.group_channels + k;
      scratch.mean[c] = static_cast<float>(means[0]);
      scratch.a[c] = static_cast<float>(rstd * weight_at(args.in[1], c));
      scratch.b[c] = weight_at(args.in[2], c);
    }
  }
  channel_normalise(dtype, offset_elems(x.data, dtype, at), cut.pixels, cut.channels, scratch.mean, scratch.a,
                    scratch.b, offset_elems(args.out[0].data, dtype, at));
}

void group_norm(const KernelArgs& args, Stream& stream) {
  const Cut cut(args.in[0].type.shape, args.attrs);
  stream.pool().parallel_for(cut.num_parts, [&](int64_t index, int) {
    const Scratch scratch(args.workspace, cut, index);
    const Range images = part(cut.images, cut.part_images, index);
    for (int64_t image = images.begin; image < images.end; ++image)
      normalise_image(args, cut, image, scratch);
  });
}

// With g = gamma dy and means over the group: dx = rstd (g - mean(g) - x_hat mean(g x_hat)).
void image_grad(const KernelArgs& args, const Cut& cut, int64_t image, const Scratch& scratch) {
  const TensorArg &dy = args.in[0], &x = args.in[1], &gamma = args.in[2];
  const float* mean = args.in[3].as<float>() + image * cut.groups;
  const float* rstd = args.in[4].as<float>() + image * cut.groups;
  const DType dtype = x.type.dtype;
  const int64_t at = image * cut.pixels * cut.channels;
  for (int64_t c = 0; c < cut.channels; ++c) scratch.mean[c] = mean[c / cut.group_channels];
  channel_grad_sums(dtype, offset_elems(dy.data, dtype, at), offset_elems(x.data, dtype, at), cut.pixels,
                    cut.channels, scratch.mean, scratch.sums, scratch.first, scratch.second);
  const double count = static_cast<double>(cut.pixels * cut.group_channels);
  for (int64_t group = 0; group < cut.groups; ++group) {
    const double inverse = rstd[group];
    const int64_t begin = group * cut.group_channels, end = begin + cut.group_channels;
    double mean_g = 0, mean_gx = 0;
    for (int64_t c = begin; c < end; ++c) {
      mean_g += weight_at(gamma, c) * scratch.first[c] / count;
      mean_gx += weight_at(gamma, c) * scratch.second[c] * inverse / count;
      scratch.dbeta[c] += scratch.first[c];
      scratch.dgamma[c] += scratch.second[c] * inverse;
    }
    for (int64_t c = begin; c < end; ++c) {
      scratch.a[c] = static_cast<float>(inverse * weight_at(gamma, c));
      scratch.b[c] = static_cast<float>(-inverse * inverse * mean_gx);
      scratch.c[c] = static_cast<float>(-inverse * mean_g);
    }
  }
  channel_grad_apply(dtype, offset_elems(dy.data, dtype, at), offset_elems(x.data, dtype, at), cut.pixels,
                     cut.channels, {scratch.mean, scratch.a, scratch.b, scratch.c},
                     offset_elems(args.out[0].data, dtype, at));
}

void group_norm_grad(const KernelArgs& args, Stream& stream) {
  const Cut cut(args.in[1].type.shape, args.attrs);
  stream.pool().parallel_for(cut.num_parts, [&](int64_t index, int) {
    const Scratch scratch(args.workspace, cut, index);
    std::fill_n(scratch.dgamma, 2 * cut.channels, 0.0);
    const Range images = part(cut.images, cut.part_images, index);
    for (int64_t image = images.begin; image < images.end; ++image) image_grad(args, cut, image, scratch);
  });
  float *dgamma = args.out[1].as<float>(), *dbeta = args.out[2].as<float>();
  const Scratch total(args.workspace, cut, 0);
  for (int64_t index = 1; index < cut.num_parts; ++index) {
    const Scratch scratch(args.workspace, cut, index);
    for (int64_t c = 0; c < cut.channels; ++c) {
      total.dgamma[c] += scratch.dgamma[c];
      total.dbeta[c] += scratch.dbeta[c];
    }
  }
  for (int64_t c = 0; c < cut.channels; ++c) {
    dgamma[c] += static_cast<float>(total.dgamma[c]);
    dbeta[c] += static_cast<float>(total.dbeta[c]);
  }
}

bool supports(const CallSignature& call) {
  const DType dtype = call.in[0].dtype;
  return is_storage(dtype) && call.out[0].dtype == dtype && is_storage(call.in[1].dtype) &&
         is_storage(call.in[2].dtype);
}

bool supports_grad(const CallSignature& call) {
  return supports(call) && call.in[1].dtype == call.in[0].dtype && call.in[3].dtype == DType::F32 &&
         call.out[1].dtype == DType::F32 && call.out[2].dtype == DType::F32;
}

}  // namespace

void add_group_norm_kernels(KernelRegistry& registry) {
  registry.add({"cpu.group_norm", Op::GroupNorm, supports, workspace, group_norm});
  registry.add({"cpu.group_norm_grad", Op::GroupNormGrad, supports_grad, workspace, group_norm_grad});
}

}  // namespace tandem::cpu
