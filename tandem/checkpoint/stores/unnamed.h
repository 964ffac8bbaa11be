// What lies in a store of checkpoints and belongs to none: parts of uploads that were killed, files that no
// manifest names, claims that have served, signs of life of nobody. `tandem gc` shows and frees it.
#pragma once

#include <string>
#include <vector>

#include "tandem/store/store.h"

namespace tandem {

struct Unnamed {
  StoredObject object;
  std::string what;         // "no manifest names it"
  bool unfinished = false;  // not an object yet
};

std::vector<Unnamed> find_unnamed(const StoreRef& store);
void remove_unnamed(const StoreRef& store, const Unnamed& unnamed);

}  // namespace tandem
