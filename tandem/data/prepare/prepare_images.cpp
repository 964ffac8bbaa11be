#include "tandem/data/prepare/prepare_images.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/thread_pool.h"
#include "tandem/data/images/image_facts.h"
#include "tandem/data/images/image_shard.h"
#include "tandem/data/images/image_view.h"
#include "tandem/data/prepare/prepared_directory.h"
#include "tandem/store/file_system.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ship = std::function<void(const fs::path& shard)>;

constexpr int64_t kSumsSide = 64;  // what channels are summed over, of images that stay as they are

// An image as a shard holds it, or why it cannot be read.
struct Ready {
  std::optional<StoredImage> image;
  ChannelSums sums;
  std::exception_ptr failure;
};

Ready make_ready(const ImageSource& source, int64_t index, int64_t size) {
  Ready ready;
  try {
    StoredImage stored = source.read(index);
    const std::string name = source.name(index);
    const int64_t side = size > 0 ? size : kSumsSide;
    std::vector<float> view(static_cast<size_t>(side * side * kShardChannels));
    view_image(stored, name, {.side = side, .channels = kShardChannels, .thorough = true},
               view.data());  // finds broken ones
    ready.sums.add(view, kShardChannels);
    if (size > 0) {
      stored = {std::vector<std::byte>(view.size()), size, size, kShardChannels};
      std::transform(view.begin(), view.end(), stored.bytes.begin(), [](float value) {
        return static_cast<std::byte>(std::clamp(std::lround(value), 0L, 255L));
      });
    }
    ready.image = std::move(stored);
  } catch (...) {
    ready.failure = std::current_exception();
  }
  return ready;
}

class ImagePreparation {
 public:
  ImagePreparation(const fs::path& directory, const PrepareImagesOptions& options, Ship ship)
      : directory_(directory), options_(options), ship_(std::move(ship)) {}

  PrepareImagesStats run(const std::string& folder) {
    const std::unique_ptr<ImageSource> train = open_images(folder, Split::Train);
    std::unique_ptr<ImageSource> eval;
    if (train->has_own_split()) eval = open_images(folder, Split::Eval);
    stats_.num_classes = static_cast<int64_t>(train->classes().size());
    total_ = train->num_images() + (eval ? eval->num_images() : 0);
    const std::vector<int32_t> same = labels_among(*train, train->classes(), folder);
    add(*train, same, eval ? 0 : options_.eval_fraction, kTrain);
    if (eval) add(*eval, labels_among(*eval, train->classes(), folder), 0, kEval);
    for (const size_t split : {kTrain, kEval}) flush(split);
    if (stats_.train_images == 0) throw DataError("{}: no image to train on", folder);
    const Json index = {
        {"format", "tandem-images"},   {"version", 1},
        {"classes", train->classes()}, {"size", options_.size},
        {"sums", to_json(sums_)},      {"splits", {{"train", shards_[kTrain]}, {"eval", shards_[kEval]}}}};
    write_atomically(directory_ / kPreparedIndex,
                     index.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return stats_;
  }

 private:
  static constexpr size_t kTrain = 0, kEval = 1;

  // Some images at a time by all threads, then into shards in order.
  void add(const ImageSource& source, const std::vector<int32_t>& labels, double eval_fraction,
           size_t split) {
    constexpr int64_t kAtOnce = 256;
    const int64_t count = source.num_images();
    for (int64_t first = 0; first < count; first += kAtOnce) {
      std::vector<Ready> ready(static_cast<size_t>(std::min(kAtOnce, count - first)));
      std::atomic<size_t> next{0};
      const auto work = [&] {
        for (size_t i = next++; i < ready.size(); i = next++)
          ready[i] = make_ready(source, first + static_cast<int64_t>(i), options_.size);
      };
      {
        std::vector<std::jthread> threads;
        const int wanted = options_.threads > 0 ? options_.threads : num_cores();
        for (int i = 1; i < wanted; ++i) threads.emplace_back(work);
        work();
      }
      for (size_t i = 0; i < ready.size(); ++i) {
        const int64_t index = first + static_cast<int64_t>(i);
        // Every 1 / fraction-th.
        const auto number = [&](int64_t n) {
          return std::floor(static_cast<double>(n) * eval_fraction + 1e-9);
        };
        const bool held_out = number(index + 1) > number(index);
        take(ready[i], labels[static_cast<size_t>(source.label(index))], held_out ? kEval : split);
        ++done_;
      }
      if (options_.progress) options_.progress(done_, total_);
    }
  }

  void take(const Ready& ready, int32_t label, size_t split) {
    if (ready.failure) {
      try {
        std::rethrow_exception(ready.failure);
      } catch (const DataError& error) {
        if (!options_.skip_broken) throw;
        ++stats_.num_broken;
        const std::string why = error.what();
        if (options_.tell) options_.tell(why.substr(0, why.find(';')) + "; is left out");
        return;
      }
    }
    if (split == kTrain) sums_.add(ready.sums);
    ++(split == kTrain ? stats_.train_images : stats_.eval_images);
    writers_[split].add(*ready.image, label);
    if (writers_[split].bytes() >= options_.shard_bytes) flush(split);
  }

  void flush(size_t split) {
    ImageShardWriter& writer = writers_[split];
    if (writer.num_images() == 0) return;
    const std::string name =
        fmt::format("{}-{:05}.images", split == kTrain ? "train" : "eval", shards_[split].size());
    const int64_t images = writer.num_images();
    stats_.bytes += writer.bytes();
    const std::string digest = writer.write(directory_ / name);
    if (ship_) ship_(directory_ / name);
    shards_[split].push_back({{"file", name}, {"images", images}, {"digest", digest}});
    ++stats_.num_shards;
  }

  const fs::path directory_;
  const PrepareImagesOptions& options_;
  const Ship ship_;
  ImageShardWriter writers_[2];
  Json shards_[2] = {Json::array(), Json::array()};
  ChannelSums sums_;
  PrepareImagesStats stats_;
  int64_t done_ = 0, total_ = 0;
};

PrepareImagesStats prepare_in(const fs::path& path, const std::string& folder,
                              const PrepareImagesOptions& options, const Ship& ship = {}) {
  const PartialDirectory partial(path);
  partial.empty();  // what a killed run left
  try {
    const PrepareImagesStats stats = ImagePreparation(partial.path(), options, ship).run(folder);
    sync_directory(partial.path());
    return stats;
  } catch (...) {
    partial.remove();
    throw;
  }
}

}  // namespace

PrepareImagesStats prepare_images(const std::string& folder, const fs::path& out,
                                  const PrepareImagesOptions& options) {
  if (!(options.eval_fraction >= 0.0 && options.eval_fraction < 1.0))
    throw ConfigError("eval fraction {}: expected at least 0 and below 1", options.eval_fraction);
  if (is_remote(out.string())) {
    const auto store = open_for_new_set(out.string());
    const fs::path partial = partial_of(*store);
    const PrepareImagesStats stats = prepare_in(partial, folder, options, [&](const fs::path& shard) {
      put_file(*store, shard);
      fs::remove(shard);
    });
    put_rest(*store, partial);
    return stats;
  }
  if (is_there(out))
    throw ConfigError("{}: already exists; remove it or name another directory", out.string());
  const fs::path target = named_directory(out);
  try {
    if (target.has_parent_path()) fs::create_directories(target.parent_path());
    const fs::path partial = target.string() + ".partial";
    const PrepareImagesStats stats = prepare_in(partial, folder, options);
    move_directory(partial, target, kPreparedIndex);
    return stats;
  } catch (const fs::filesystem_error& error) {
    throw IoError("{}: cannot write: {}", target.string(), error.code().message());
  }
}

}  // namespace tandem
