// Objects that will be a bundle (store.h) and that nobody sees who looks for bundles. Several processes may
// fill one draft together: it is also where they leave notes for each other. Names are relative to it.
#pragma once

#include "tandem/store/store.h"

namespace tandem {

class Draft {
 public:
  // Lets go of it. What is in it stays: for others who fill it, for remove_all, or as a leftover.
  virtual ~Draft() = default;
  virtual std::string description() const = 0;
  virtual std::unique_ptr<ObjectWriter> create(const std::string& name) = 0;
  virtual std::unique_ptr<ObjectReader> open(const std::string& name) const = 0;
  virtual void put(const std::string& name, std::string_view text) = 0;
  virtual void remove(const std::string& name) = 0;
  virtual void remove_all() noexcept = 0;
  // Also what is still being written, where the store can tell: their sizes are how others see progress.
  virtual std::vector<StoredObject> list() const = 0;

  // What an object of this draft is called in the bundle: the index must mention it so.
  virtual std::string committed_name(const std::string& name) const = 0;

  // Removes `notes`, which were only for those who filled the draft, and makes the rest the bundle, with this
  // text as its index; in place of an older bundle of that name, whose objects stay until drop_replaced.
  // Either it is committed and durable, or it throws and the older bundle is there as before.
  virtual void commit(std::string_view index, std::span<const std::string> notes) = 0;
  virtual void drop_replaced() noexcept = 0;

  enum class State { Open, Committed, Gone };  // Gone: removed by somebody
  virtual State state() const = 0;             // where it is Committed, it is durable
};

}  // namespace tandem
