#include "tandem/checkpoint/stores/unnamed.h"

#include <algorithm>
#include <map>

#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/stores/alive.h"
#include "tandem/checkpoint/stores/claim.h"
#include "tandem/store/index_draft.h"

namespace tandem {

std::vector<Unnamed> find_unnamed(const StoreRef& store) {
  std::vector<Unnamed> found;
  std::map<std::string, StoredObject> objects;
  std::vector<std::string> folders;
  for (const StoredObject& object : store->list("")) {
    objects[object.name] = object;
    const size_t slash = object.name.find('/');
    const std::string folder = slash == std::string::npos ? "" : object.name.substr(0, slash);
    if (is_checkpoint_name(folder) && (folders.empty() || folders.back() != folder))
      folders.push_back(folder);
  }
  for (const std::string& folder : folders) {
    for (const std::string& name : unmentioned_objects(*store, folder))
      found.push_back({objects[name], "no manifest names it", false});
  }
  for (const std::string& name : old_claims(store)) found.push_back({objects[name], "an old claim", false});
  for (const std::string& name : old_signs(store))
    found.push_back({objects[name], "a sign of life that no claim goes with", false});
  // On a disk what is hidden is ours by its name.
  for (const StoredObject& object : store->unfinished()) {
    if (object.name.starts_with('.') || is_checkpoint_name(object.name.substr(0, object.name.find('/'))))
      found.push_back({object, "was begun and not finished", true});
  }
  return found;
}

void remove_unnamed(const StoreRef& store, const Unnamed& unnamed) {
  if (unnamed.unfinished) {
    store->remove_unfinished(unnamed.object);
  } else {
    store->remove(unnamed.object.name);
  }
}

}  // namespace tandem
