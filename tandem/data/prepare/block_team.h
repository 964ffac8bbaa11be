// Threads that read and encode the blocks of many files, several files and several blocks of a file at a
// time, and one reader of the results, who gets them in the order of the files.
#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tandem/data/prepare/encode_block.h"

namespace tandem {

// Where work begins: a file by its number, and a place in it.
struct WorkPlace {
  size_t file = 0;
  BlockPlace block;
};

class BlockTeam {
 public:
  // All that is passed outlives this. `num_threads` at least 1.
  BlockTeam(std::span<const InputFile> files, const BlockOptions& reading, const EncodeOptions& encoding,
            const Tokenizer& tokenizer, const WorkPlace& from, int num_threads);
  ~BlockTeam();
  BlockTeam(const BlockTeam&) = delete;
  BlockTeam& operator=(const BlockTeam&) = delete;

  struct Result {
    EncodedBlock encoded;
    WorkPlace next;        // where work goes on behind it
    int64_t consumed = 0;  // bytes of this file on disk up to its end
  };
  // The next one; nothing at the end of the last file. Throws what reading or encoding it threw.
  std::optional<Result> next();

 private:
  struct File {
    std::unique_ptr<BlockReader> reader;
    bool busy = false;        // a thread is reading from it
    int64_t num_claimed = 0;  // blocks
    bool ended = false;       // num_claimed is all of them
  };
  struct Done {
    Result result;
    std::exception_ptr error;
  };
  void work();
  bool may_claim(size_t file) const;
  std::optional<size_t> claim();
  void stop();

  const std::span<const InputFile> files_;
  const BlockOptions& reading_;
  const EncodeOptions& encoding_;
  const Tokenizer& tokenizer_;
  const WorkPlace from_;
  const size_t most_open_;      // files that are being read
  const int64_t most_waiting_;  // blocks that are being made, or are made and nobody has taken

  std::mutex mutex_;  // guards what follows
  std::condition_variable claimable_, changed_;
  std::vector<File> state_;
  std::map<std::pair<size_t, int64_t>, Done> done_;  // by file and block
  size_t front_;                                     // the file that next() is in
  int64_t taken_ = 0;                                // blocks of it
  int64_t waiting_ = 0;
  bool stop_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace tandem
