#include "tandem/convert/sizes.h"

#include "tandem/base/error.h"

namespace tandem::convert {
namespace {

constexpr int64_t kUsualMicroBatch = 8;

void check_positive(const std::string& file, std::string_view what, const std::optional<int64_t>& number) {
  constexpr int64_t kMost = int64_t{1} << 30;  // three of them are multiplied below
  if (!number || (*number >= 1 && *number <= kMost)) return;
  throw ConfigError("{}: expected {} between 1 and {}, found {}", file, what, kMost, *number);
}

// A product that 64 bits hold, since no factor is above 2^30 and no sensible product comes near.
int64_t times(const std::string& file, int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw ConfigError("{}: batch sizes multiply to more than 64 bits hold", file);
  return product;
}

// The axis' size, where ranks or a batch and its parts give it.
std::optional<int64_t> data_axis(const Sizes& sizes, const std::string& file) {
  const int64_t others = times(file, sizes.tensor, sizes.pipeline);
  if (sizes.ranks) {
    if (*sizes.ranks % others != 0)
      throw ConfigError("{}: {} ranks do not divide by tensor {} * pipeline {}; give another --ranks", file,
                        *sizes.ranks, sizes.tensor, sizes.pipeline);
    return *sizes.ranks / others;
  }
  if (!sizes.batch || !sizes.micro_batch || !sizes.accumulation) return std::nullopt;
  const int64_t unit = times(file, *sizes.micro_batch, *sizes.accumulation);
  if (*sizes.batch % unit != 0)
    throw ConfigError("{}: a batch of {} is no multiple of {} a rank * {} passes", file, *sizes.batch,
                      *sizes.micro_batch, *sizes.accumulation);
  return *sizes.batch / unit;
}

void set_global_batch(const Sizes& sizes, const std::string& file, std::optional<int64_t> data,
                      Draft& draft) {
  draft.set("train.batch", *sizes.batch);
  std::optional<int64_t> micro_batch = sizes.micro_batch;
  if (!micro_batch && sizes.accumulation && data) {
    const int64_t unit = times(file, *sizes.accumulation, *data);
    if (*sizes.batch % unit == 0) micro_batch = *sizes.batch / unit;
  }
  if (!micro_batch) {
    if (sizes.accumulation)
      draft.hint("train.micro_batch", fmt::format("batch / ({} * ranks)", *sizes.accumulation),
                 fmt::format("{} passes a step take batch / (passes * ranks) each; give --ranks N",
                             *sizes.accumulation));
    return;
  }
  const int64_t unit = times(file, times(file, *micro_batch, data.value_or(1)),
                             sizes.accumulation && data ? *sizes.accumulation : 1);
  if (*sizes.batch % unit != 0 || (sizes.accumulation && data && *sizes.batch != unit))
    throw ConfigError("{}: a batch of {} is not {} a pass{} on {} ranks; give the --ranks it was used with",
                      file, *sizes.batch, *micro_batch,
                      sizes.accumulation ? fmt::format(" * {} passes", *sizes.accumulation) : "",
                      data.value_or(1));
  draft.set("train.micro_batch", *micro_batch);
}

void set_batch_of_parts(const Sizes& sizes, const std::string& file, std::optional<int64_t> data,
                        Draft& draft) {
  const int64_t micro_batch = sizes.micro_batch.value_or(kUsualMicroBatch),
                passes = sizes.accumulation.value_or(1);
  const std::string ranks =
      data ? fmt::format("{} ranks on the data axis", *data) : "one rank; give --ranks N for another number";
  const int64_t batch = times(file, times(file, micro_batch, passes), data.value_or(1));
  draft.assumed("train.batch", batch,
                fmt::format("{} {} a pass * {} passes * {}",
                            sizes.micro_batch ? "from" : "the file has none:", micro_batch, passes, ranks));
  draft.set("train.micro_batch", micro_batch);
}

}  // namespace

void set_sizes(const Sizes& sizes, const std::string& file, Draft& draft) {
  check_positive(file, "a number of ranks", sizes.ranks);
  check_positive(file, "a global batch", sizes.batch);
  check_positive(file, "a batch of one rank", sizes.micro_batch);
  check_positive(file, "a number of accumulated passes", sizes.accumulation);
  check_positive(file, "a tensor axis", sizes.tensor);
  check_positive(file, "a pipeline axis", sizes.pipeline);
  const std::optional<int64_t> data = data_axis(sizes, file);
  if (sizes.batch) {
    set_global_batch(sizes, file, data, draft);
  } else {
    set_batch_of_parts(sizes, file, data, draft);
  }
  if (sizes.tensor > 1) draft.set("parallel.tensor", sizes.tensor);
  if (sizes.pipeline > 1) draft.set("parallel.pipeline", sizes.pipeline);
  if (!data || *data == 1) return;
  if (!draft.has("parallel.strategy")) draft.set("parallel.strategy", "ddp");
  if (sizes.ranks) {
    draft.set("parallel.data", *data);
  } else {
    draft.assumed("parallel.data", *data,
                  fmt::format("from a batch of {} / ({} a rank * {} passes)", *sizes.batch,
                              *sizes.micro_batch, *sizes.accumulation));
  }
}

}  // namespace tandem::convert
