#include "tandem/data/images/image_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/thread_pool.h"
#include "tandem/data/images/image_view.h"
#include "tandem/store/store.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

ChannelSums sum_images(const ImageSource& source, const FactsOptions& options) {
  const int64_t all = source.num_images(), count = std::min(all, kMostSummed);
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  ChannelSums total;
  int64_t failed_at = count;  // the first one that fails is told, whichever thread meets it
  std::exception_ptr failure;
  const auto work = [&] {
    std::vector<float> view(static_cast<size_t>(options.side * options.side * options.channels));
    ChannelSums sums;
    for (int64_t i = next++; i < count; i = next++) {
      const int64_t index = count == all ? i : i * all / count;
      try {
        view_image(source.read(index), source.name(index),
                   {.side = options.side, .channels = options.channels}, view.data());
        sums.add(view, options.channels);
      } catch (const DataError&) {
        const std::lock_guard lock(mutex);
        if (options.skip_broken || i >= failed_at) continue;
        failed_at = i;
        failure = std::current_exception();
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed_at = -1;
        failure = std::current_exception();
      }
    }
    const std::lock_guard lock(mutex);
    total.add(sums);
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < num_cores(); ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return total;
}

fs::path kept_in(const ImageSource& source, const FactsOptions& options) {
  const std::string key = fmt::format("channel sums 1 {} {} {} {}", source.identity(), options.side,
                                      options.channels, options.skip_broken);
  return cache_directory() / "images" / (digest_hex(std::as_bytes(std::span(key))) + ".json");
}

}  // namespace

ChannelSums channel_sums(const ImageSource& source, const FactsOptions& options, std::string& note) {
  if (const auto kept = source.kept_sums(); kept && options.channels == kMostImageChannels) return *kept;
  const fs::path file = kept_in(source, options);
  try {
    if (is_there(file)) return channel_sums_from(nlohmann::json::parse(read_text(file)));
  } catch (const nlohmann::json::exception&) {  // not whole: is made again
  }
  const ChannelSums sums = sum_images(source, options);
  try {
    make_directories(file.parent_path());
    write_atomically(file, to_json(sums).dump() + "\n");
  } catch (const std::exception&) {  // of the disk: all else has gone well by then
    note = fmt::format(
        "{}: cannot be written: means and deviations of {} images are made again at every start; set "
        "XDG_CACHE_HOME to a directory that can, or use a set of `tandem prepare --images`",
        file.parent_path().string(), std::min(source.num_images(), kMostSummed));
  }
  return sums;
}

ImageFacts image_facts(std::span<const std::unique_ptr<ImageSource>> sources,
                       std::span<const std::string> names, const FactsOptions& options) {
  ImageFacts facts;
  ChannelSums sums;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (i == 0) facts.classes = sources[i]->classes();
    if (sources[i]->classes() != facts.classes) {
      throw DataError("{}: has other classes than {}; sets that are trained on together need the same",
                      names[i], names[0]);
    }
    if (options.normalize) sums.add(channel_sums(*sources[i], options, facts.note));
  }
  if (options.normalize && !sources.empty()) facts.scale = ChannelScale::of(sums);
  return facts;
}

std::vector<int32_t> labels_among(const ImageSource& source, const std::vector<std::string>& classes,
                                  const std::string& name) {
  std::vector<int32_t> labels;
  for (const std::string& known : source.classes()) {
    const auto found = std::find(classes.begin(), classes.end(), known);
    if (found == classes.end()) {
      throw DataError(
          "{}: class {} is not one of data.train, which has {}: {}", name, known, classes.size(),
          fmt::join(classes.begin(), classes.begin() + std::min<ptrdiff_t>(8, std::ssize(classes)), ", "));
    }
    labels.push_back(static_cast<int32_t>(found - classes.begin()));
  }
  return labels;
}

}  // namespace tandem
