// Where all that a pipeline makes is kept beside its directory, on any machine's reach: a store such as
// s3://bucket/prefix. Under each step's home lie its files and, put last and only once, its record, which
// names every file with size and digest. So an output is there whole or not at all, of two machines that make
// the same step at the same time the first one's counts, and a record tells what data, config, code and
// checkpoint made each thing.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tandem/pipeline/record.h"
#include "tandem/store/store.h"

namespace tandem::pipeline {

class RemoteStore {
 public:
  explicit RemoteStore(const std::string& address);

  // Of a step that is finished there.
  std::optional<Json> record(const Plan& plan, size_t step) const;

  // Puts a finished step's output, log and record there; nothing where they are. Where another machine was
  // first, its output takes the place of the local one.
  void keep(const Plan& plan, size_t step);

  // Makes the step finished here, too. Throws DataError where a file there is not what the record says.
  void fetch(const Plan& plan, size_t step, const Json& record);

 private:
  std::string address_;
  std::shared_ptr<Store> store_;
};

}  // namespace tandem::pipeline
