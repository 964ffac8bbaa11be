#include "tandem/data/prepare/prepare.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/thread_pool.h"
#include "tandem/data/prepare/block_team.h"
#include "tandem/data/prepare/prepared_directory.h"
#include "tandem/data/prepare/shard_writer.h"
#include "tandem/data/token_shard.h"
#include "tandem/store/file_system.h"
#include "tandem/store/store.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kState = "state";  // what a killed run goes on from

using Ship = std::function<void(const fs::path& shard)>;

void check_options(const fs::path& out_dir, const PrepareOptions& options) {
  if (options.shard_tokens < 1)
    throw ConfigError("shard size {}: expected at least 1 token", options.shard_tokens);
  if (!(options.eval_fraction >= 0.0 && options.eval_fraction < 1.0)) {
    throw ConfigError("eval fraction {}: expected at least 0 and below 1", options.eval_fraction);
  }
  if (options.field.empty()) throw ConfigError("field: expected a name");
  if (!is_remote(out_dir.string()) && is_there(out_dir)) {
    throw ConfigError("{}: already exists; remove it or name another directory", out_dir.string());
  }
}

// What has to be the same for a run to go on where another one was.
std::string signature_of(std::span<const InputFile> files, const PrepareOptions& options,
                         const Tokenizer& tokenizer) {
  Json all = {{"version", 1},
              {"tokenizer", {tokenizer.name(), tokenizer.digest(), tokenizer.separator()}},
              {"shard_tokens", options.shard_tokens},
              {"eval_fraction", options.eval_fraction},
              {"field", options.field},
              {"split_on", options.split_on},
              {"separate", options.separate},
              {"files", Json::array()}};
  for (const InputFile& file : files)
    all["files"].push_back({file.path.string(), file.bytes, file.modified_ns});
  const std::string text = all.dump(-1, ' ', true, Json::error_handler_t::replace);
  return digest_hex(std::as_bytes(std::span(text)));
}

class Preparation {
 public:
  Preparation(std::span<const InputFile> files, const fs::path& directory, const PrepareOptions& options,
              const Tokenizer& tokenizer, Ship ship)
      : files_(files),
        options_(options),
        directory_(directory),
        tokenizer_(tokenizer),
        signature_(signature_of(files, options, tokenizer)),
        reading_{options.split_on, options.eval_fraction},
        encoding_{options.field, options.split_on, options.eval_fraction, options.separate},
        shards_{directory,
                tokenizer.vocab_size(),
                options.shard_tokens,
                separator_of(tokenizer, options.separate),
                std::string(tokenizer.digest()),
                std::move(ship)},
        writers_{ShardWriter(shards_, "train"), ShardWriter(shards_, "eval")} {
    stats_.num_files = static_cast<int64_t>(files.size());
    for (const InputFile& file : files) stats_.input_bytes += file.bytes;
  }

  // False where there is nothing of these inputs and options to go on from; throws where what was saved is
  // damaged.
  bool restore() {
    const fs::path file = directory_ / kState;
    if (!is_there(file)) return false;
    const std::string text = read_text(file, int64_t{1} << 40);
    std::string_view rest = text;
    const Json saved = Json::parse(take_record(rest, "\n"));
    if (saved.value("signature", "") != signature_) return false;
    for (size_t i = 0; i < writers_.size(); ++i) writers_[i].restore(saved.at("splits").at(i), rest);
    place_ = {saved.at("file"), {saved.at("offset"), saved.at("record")}};
    stats_.num_replaced = saved.at("replaced");
    for (size_t i = 0; i < place_.file; ++i) done_bytes_ += files_[i].bytes;
    return true;
  }

  PrepareStats run() {
    const int threads = options_.threads > 0 ? options_.threads : num_cores();
    BlockTeam team(files_, reading_, encoding_, tokenizer_, place_, threads);
    if (options_.progress) options_.progress(done_bytes_, stats_.input_bytes);
    while (const auto result = team.next()) {
      for (size_t i = 0; i < writers_.size(); ++i) writers_[i].append(result->encoded.parts[i]);
      stats_.num_replaced += result->encoded.num_replaced;
      for (; place_.file < result->next.file; ++place_.file) done_bytes_ += files_[place_.file].bytes;
      place_ = result->next;
      save_now_and_then();
      if (options_.progress) options_.progress(done_bytes_ + result->consumed, stats_.input_bytes);
    }
    if (options_.progress) options_.progress(stats_.input_bytes, stats_.input_bytes);
    return finish();
  }

 private:
  void save_now_and_then() {
    const auto now = std::chrono::steady_clock::now();
    if (std::chrono::duration<double>(now - saved_at_).count() < options_.save_every_s) return;
    std::string tokens;
    Json splits = Json::array();
    for (const ShardWriter& writer : writers_) splits.push_back(writer.save(tokens));
    const Json state = {{"signature", signature_},         {"file", place_.file},
                        {"offset", place_.block.offset},   {"record", place_.block.record},
                        {"replaced", stats_.num_replaced}, {"splits", splits}};
    write_atomically(directory_ / kState, state.dump() + "\n" + tokens);
    saved_at_ = std::chrono::steady_clock::now();
  }

  PrepareStats finish() {
    stats_.train_tokens = writers_[0].num_tokens();
    stats_.eval_tokens = writers_[1].num_tokens();
    stats_.num_documents = writers_[0].num_documents() + writers_[1].num_documents();
    if (stats_.num_documents == 0)
      throw DataError("{}: no text in {} files", files_[0].path.string(), files_.size());
    const Json train = writers_[0].finish(), eval = writers_[1].finish();
    stats_.num_shards = static_cast<int64_t>(train.size() + eval.size());
    const bool is_bytes = tokenizer_.name() == kBytes;
    if (!is_bytes) copy_tokenizer();
    const Json index = {{"format", "tandem-tokens"},
                        {"version", 2},
                        {"tokenizer", options_.tokenizer},
                        {"tokenizer_digest", tokenizer_.digest()},
                        {"vocab", tokenizer_.vocab_size()},
                        {"token_bytes", shard_token_bytes(tokenizer_.vocab_size())},
                        {"separator", shards_.separator},
                        {"documents", stats_.num_documents},
                        {"splits", {{"train", train}, {"eval", eval}}}};
    write_atomically(directory_ / kPreparedIndex, index.dump(2) + "\n");
    fs::remove(directory_ / kState);
    // Of runs that were killed while they wrote.
    remove_dead_temporaries(directory_, {kState, kPreparedIndex, "tokenizer.json", "tokenizer.model",
                                         "tokenizer_config.json", "generation_config.json"});
    return stats_;
  }

  // With the files that say what ends a text, so that the set can be used wherever it is.
  void copy_tokenizer() const {
    const fs::path file = tokenizer_file(options_.tokenizer);
    write_atomically(directory_ / (is_sentencepiece_file(file) ? "tokenizer.model" : "tokenizer.json"),
                     read_text(file, std::numeric_limits<int64_t>::max()));
    for (const char* beside : {"tokenizer_config.json", "generation_config.json"}) {
      const fs::path other = file.parent_path() / beside;
      if (is_there(other)) write_atomically(directory_ / beside, read_text(other));
    }
  }

  const std::span<const InputFile> files_;
  const PrepareOptions& options_;
  const fs::path directory_;
  const Tokenizer& tokenizer_;
  const std::string signature_;
  const BlockOptions reading_;
  const EncodeOptions encoding_;
  const ShardOptions shards_;
  std::array<ShardWriter, 2> writers_;  // by Split
  PrepareStats stats_;
  WorkPlace place_;
  int64_t done_bytes_ = 0;  // of the files before this one
  std::chrono::steady_clock::time_point saved_at_ = std::chrono::steady_clock::now();
};

PrepareStats prepare_in(const fs::path& partial_path, std::span<const InputFile> files,
                        const PrepareOptions& options, const Ship& ship = {}) {
  const auto tokenizer = make_tokenizer(options.tokenizer);
  const PartialDirectory partial(partial_path);
  try {
    std::optional<Preparation> preparation(std::in_place, files, partial.path(), options, *tokenizer, ship);
    bool found = false;
    std::string_view unusable = "of other inputs or options";
    try {
      found = preparation->restore();
    } catch (const Json::exception&) {
      unusable = "damaged";
    } catch (const DataError&) {
      unusable = "damaged";
    }
    if (!found) {
      if (is_there(partial.path() / kState) && options.tell)
        options.tell(fmt::format("{}: {}: begins anew", partial.path().string(), unusable));
      partial.empty();
      preparation.emplace(files, partial.path(), options, *tokenizer, ship);
    } else if (options.tell) {
      options.tell(fmt::format("goes on from {}", partial.path().string()));
    }
    const PrepareStats stats = preparation->run();
    sync_directory(partial.path());
    return stats;
  } catch (const IoError&) {  // such as a full disk: what was saved is still good
    if (!is_there(partial.path() / kState)) partial.remove();
    throw;
  } catch (...) {
    partial.remove();
    throw;
  }
}

// A shard is on this disk only until it has arrived.
PrepareStats prepare_far(const std::string& address, std::span<const InputFile> files,
                         const PrepareOptions& options) {
  const auto store = open_for_new_set(address);
  const fs::path partial = partial_of(*store);
  const PrepareStats stats = prepare_in(partial, files, options, [&](const fs::path& shard) {
    put_file(*store, shard);
    fs::remove(shard);
  });
  put_rest(*store, partial);
  return stats;
}

}  // namespace

PrepareStats prepare_text(std::span<const std::string> inputs, const fs::path& out_dir,
                          const PrepareOptions& options) {
  check_options(out_dir, options);
  const std::vector<InputFile> files = find_inputs(inputs);
  if (is_remote(out_dir.string())) return prepare_far(out_dir.string(), files, options);
  const fs::path target = named_directory(out_dir);
  try {
    if (target.has_parent_path()) fs::create_directories(target.parent_path());
    const fs::path partial = target.string() + ".partial";
    const PrepareStats stats = prepare_in(partial, files, options);
    move_directory(partial, target, kPreparedIndex);
    return stats;
  } catch (const fs::filesystem_error& error) {
    throw IoError("{}: cannot write: {}", target.string(), error.code().message());
  }
}

}  // namespace tandem
