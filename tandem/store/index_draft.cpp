#include "tandem/store/index_draft.h"

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr const char* kCommitted = "committed";  // a note for the others who filled the draft

std::string index_of(const std::string& bundle) { return fmt::format("{}/{}", bundle, kIndexName); }

}  // namespace

IndexDraft::IndexDraft(Store& store, const std::string& bundle, const std::string& token)
    : store_(store), bundle_(bundle), token_(token) {}

std::string IndexDraft::description() const { return store_.description(bundle_ + "/" + token_); }

std::string IndexDraft::committed_name(const std::string& name) const { return token_ + "." + name; }

std::unique_ptr<ObjectWriter> IndexDraft::create(const std::string& name) {
  used_ = true;
  return store_.create(full(name));
}

std::unique_ptr<ObjectReader> IndexDraft::open(const std::string& name) const {
  return store_.open(full(name));
}

void IndexDraft::put(const std::string& name, std::string_view text) {
  used_ = true;
  store_.put(full(name), text);
}

void IndexDraft::remove(const std::string& name) { store_.remove(full(name)); }

void IndexDraft::remove_all() noexcept {
  try {
    for (const StoredObject& object : store_.list(full(""))) store_.remove(object.name);
  } catch (const std::exception&) {  // then it is a leftover
  }
}

std::vector<StoredObject> IndexDraft::list() const {
  const std::string prefix = full("");
  std::vector<StoredObject> objects = store_.list(prefix);
  for (StoredObject& object : objects) object.name.erase(0, prefix.size());
  return objects;
}

void IndexDraft::commit(std::string_view index, std::span<const std::string> notes) {
  bool replaces = false;
  for (const StoredObject& object : store_.list(bundle_ + "/")) {
    if (object.name == index_of(bundle_)) {
      replaces = true;
    } else if (!object.name.starts_with(full(""))) {
      replaced_.push_back(object.name);
    }
  }
  if (replaces) {
    store_.put(index_of(bundle_), index);
  } else if (!store_.put_new(index_of(bundle_), index)) {
    throw DataError("{}: somebody else has just put it; two must not write there at the same time",
                    store_.description(index_of(bundle_)));
  }
  try {
    put(kCommitted, "");
    for (const std::string& note : notes) remove(note);
  } catch (const Error&) {  // it is committed all the same; those who wait for the note run out of time
  }
}

void IndexDraft::drop_replaced() noexcept {
  try {
    for (const std::string& name : replaced_) store_.remove(name);
  } catch (const std::exception&) {  // then they are leftovers
  }
}

Draft::State IndexDraft::state() const {
  if (store_.exists(full(kCommitted))) return State::Committed;
  return used_ && store_.list(full("")).empty() ? State::Gone : State::Open;
}

std::vector<std::string> unmentioned_objects(const Store& store, const std::string& bundle) {
  const std::string index = index_of(bundle);
  const std::string text = store.exists(index) ? read_text(*store.open(index)) : "";
  std::vector<std::string> names;
  for (const StoredObject& object : store.list(bundle + "/")) {
    if (object.name != index && text.find(object.name.substr(bundle.size() + 1)) == std::string::npos)
      names.push_back(object.name);
  }
  return names;
}

}  // namespace tandem
