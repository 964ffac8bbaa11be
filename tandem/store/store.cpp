#include "tandem/store/store.h"

#include <algorithm>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/store/index_draft.h"

namespace tandem {
namespace {

class ReadBytes final : public ObjectBytes {
 public:
  explicit ReadBytes(const ObjectReader& object) : bytes_(static_cast<size_t>(object.size())) {
    object.read_at(0, bytes_);
  }
  std::span<const std::byte> bytes() const override { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// The "step-00000100" of "step-00000100/manifest.json", and of whatever else is in it.
std::set<std::string> first_names(const std::vector<StoredObject>& objects) {
  std::set<std::string> names;
  for (const StoredObject& object : objects) {
    const size_t slash = object.name.find('/');
    if (slash != std::string::npos) names.insert(object.name.substr(0, slash));
  }
  return names;
}

}  // namespace

void Store::make() {}

void Store::put(const std::string& name, std::string_view text) {
  const auto object = create(name);
  object->write_all(std::as_bytes(std::span(text)));
  object->finish();
}

std::unique_ptr<ObjectBytes> Store::map(const std::string& name) const {
  return std::make_unique<ReadBytes>(*open(name));
}

std::vector<std::string> Store::bundles() const {
  const std::string index = fmt::format("/{}", kIndexName);
  std::vector<std::string> names;
  for (const StoredObject& object : list("")) {
    if (object.name.find('/') + index.size() == object.name.size() && object.name.ends_with(index))
      names.push_back(object.name.substr(0, object.name.size() - index.size()));
  }
  return names;
}

std::unique_ptr<Draft> Store::draft(const std::string& bundle, const std::string& token) {
  return std::make_unique<IndexDraft>(*this, bundle, token);
}

void Store::remove_draft(const std::string& bundle, const std::string& token) {
  IndexDraft(*this, bundle, token).remove_all();
}

void Store::remove_bundle(const std::string& bundle) {
  remove(fmt::format("{}/{}", bundle, kIndexName));
  for (const StoredObject& object : list(bundle + "/")) remove(object.name);
}

void Store::set_alias(const std::string& alias, const std::string& name) { put(alias, name); }

std::optional<std::string> Store::alias(const std::string& name) const {
  if (!exists(name)) return std::nullopt;
  return read_text(*open(name));
}

void Store::put_back_replaced() {}  // there is no moment in which a bundle is replaced and not there

std::vector<std::string> Store::remove_leftovers(const BundleNames& ours) {
  std::vector<std::string> troubles;
  for (const std::string& bundle : first_names(list(""))) {
    if (!ours(bundle)) continue;
    try {
      for (const std::string& name : unmentioned_objects(*this, bundle)) remove(name);
    } catch (const Error& error) {
      troubles.emplace_back(error.what());
    }
  }
  return troubles;
}

std::vector<StoredObject> Store::unfinished() const { return {}; }

void Store::remove_unfinished(const StoredObject& /*object*/) {}

void Store::lend_memory(std::span<std::byte> /*memory*/) {}

void Store::give_up() {}

std::string read_text(const ObjectReader& object, int64_t most) {
  const int64_t bytes = object.size();
  if (bytes > most) {
    throw DataError("{}: expected at most {}, found {}", object.description(), format_bytes(most),
                    format_bytes(bytes));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  object.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace tandem
