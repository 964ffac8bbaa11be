// A draft in a store that has objects and nothing else. Its objects lie beside those of the bundle from the
// beginning, with the token before their names: "step-00000100/TOKEN.rank-00003.ckpt". None of them counts
// before the bundle's index mentions it, and the index comes with one put.
#pragma once

#include "tandem/store/draft.h"

namespace tandem {

class IndexDraft final : public Draft {
 public:
  IndexDraft(Store& store, const std::string& bundle, const std::string& token);
  std::string description() const override;
  std::unique_ptr<ObjectWriter> create(const std::string& name) override;
  std::unique_ptr<ObjectReader> open(const std::string& name) const override;
  void put(const std::string& name, std::string_view text) override;
  void remove(const std::string& name) override;
  void remove_all() noexcept override;
  std::vector<StoredObject> list() const override;
  std::string committed_name(const std::string& name) const override;
  void commit(std::string_view index, std::span<const std::string> notes) override;
  void drop_replaced() noexcept override;
  State state() const override;

 private:
  std::string full(const std::string& name) const { return bundle_ + "/" + committed_name(name); }

  Store& store_;
  std::string bundle_;
  std::string token_;
  bool used_ = false;                  // this process has put something into it
  std::vector<std::string> replaced_;  // the older bundle's objects
};

// Objects of the bundle that its index does not mention, which are all where it has none.
std::vector<std::string> unmentioned_objects(const Store& store, const std::string& bundle);

}  // namespace tandem
