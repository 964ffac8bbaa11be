// Objects by name: what checkpoints and data lie in. A name is a relative path with slashes ("index.json",
// "step-00000100/rank-00003.ckpt"); an object appears whole or not at all and is never changed, only
// replaced. The local disk is one such store (disk_store.h); one over a network needs nothing that S3 does
// not have: no rename, no lock, no link.
//
// A bundle is a set of objects under one name, "step-00000100/...", that appears all at once, when its index
// object is put: a small text that mentions the others by name. It is filled as a draft (draft.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/store/storage_options.h"

namespace tandem {

class Draft;
class ReadAhead;
class StoreRef;

inline constexpr std::string_view kIndexName = "manifest.json";  // of a bundle's index

using BundleNames = std::function<bool(std::string_view name)>;  // those that are meant
inline constexpr int kStoreStreams = 8;  // calls under way at the same time, of an object that is far
inline bool any_bundle(std::string_view /*name*/) { return true; }

struct StoredObject {
  std::string name;
  int64_t bytes = 0;
  int64_t modified = 0;  // seconds since 1970, 0 where nobody can tell
};

// An object that was opened. It may be read by many threads at the same time.
class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  virtual int64_t size() const = 0;
  // Fills `dst`. Throws IoError, and DataError where the object ends before that.
  virtual void read_at(int64_t offset, std::span<std::byte> dst) const = 0;
  virtual std::string description() const = 0;  // for messages: a path, an address
  // Each read is a call over a network: a few long ones are better than many short ones.
  virtual bool is_far() const { return false; }
  virtual std::string version() const {
    return {};
  }  // another where the object was replaced, where one can tell
};

// An object that is being written part by part, so that it need not fit into memory. It is there when
// finish() returns, and never where that is not called.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  virtual void write_all(std::span<const std::byte> bytes) = 0;  // after what was written before
  // Memory for the next bytes, at most so many, which add() then counts as written: that saves a copy. Empty
  // where the writer has none, which is for good.
  virtual std::span<std::byte> room(size_t /*most*/) { return {}; }
  virtual void add(size_t /*bytes*/) { TANDEM_CHECK(false, "a writer without room"); }
  virtual void finish() = 0;  // durable from then on
};

// A whole object in memory.
class ObjectBytes {
 public:
  virtual ~ObjectBytes() = default;
  virtual std::span<const std::byte> bytes() const = 0;
};

// There is none of that name, which is known for sure.
class MissingObject : public IoError {
 public:
  using IoError::IoError;
};

// All methods may be called by many threads and processes at the same time. They throw IoError starting with
// the description of the object at fault.
class Store {
 public:
  virtual ~Store() = default;
  // Where each call goes over a network, an IoError other than MissingObject says nothing about what is
  // there.
  virtual bool is_far() const { return false; }

  // What every store has of its own.
  virtual std::string description(const std::string& name) const = 0;  // "/data/run/NAME"; "" is the store
  virtual std::unique_ptr<ObjectReader> open(const std::string& name) const = 0;
  virtual bool exists(const std::string& name) const = 0;
  virtual std::unique_ptr<ObjectWriter> create(const std::string& name) = 0;
  virtual std::vector<StoredObject> list(
      const std::string& prefix) const = 0;          // by name; a store may be empty
  virtual void remove(const std::string& name) = 0;  // none of that name: nothing
  virtual int64_t free_bytes() const = 0;  // what may still be put; the largest number where nobody can tell
  // A put that replaces nothing: false where there is an object of that name. Of many who try at the same
  // time, in whatever processes, exactly one gets true, also where it tried several times and no other did.
  // The text has to be of the caller alone.
  virtual bool put_new(const std::string& name, std::string_view text) = 0;

  // What a store may do better than with the above.
  virtual void make();  // the place itself, where it is missing; before the first put
  virtual void put(const std::string& name, std::string_view text);
  virtual std::unique_ptr<ObjectBytes> map(const std::string& name) const;  // a file is not read, but mapped

  // Bundles. Here a bundle is committed by a put of its index, and a name `alias` that stands for another is
  // an object with that other name as its text.
  virtual std::vector<std::string> bundles() const;  // names, in any order
  // A draft of a bundle: a new one, or the one of that token that others are filling already. The token is
  // of one save alone: letters, digits, '-' and '_'.
  virtual std::unique_ptr<Draft> draft(const std::string& bundle, const std::string& token);
  virtual void remove_draft(const std::string& bundle, const std::string& token);
  virtual void remove_bundle(const std::string& bundle);  // it disappears at once, then its objects go
  virtual void set_alias(const std::string& alias, const std::string& name);
  virtual std::optional<std::string> alias(
      const std::string& name) const;  // what it stands for, if it is one
  // For whoever begins to use the store, alone: a bundle that was being replaced when its writer was killed
  // is there again; before anybody looks for bundles.
  virtual void put_back_replaced();
  // Removes what killed writers left of bundles whose names are `ours`: a bucket may hold other things, too.
  // Returns a sentence for each that cannot be removed: it is in nobody's way. Where a store cannot tell the
  // living from the dead, no draft may be open.
  virtual std::vector<std::string> remove_leftovers(const BundleNames& ours);
  // What somebody has begun to write and not finished, or never will: bytes that no list shows.
  virtual std::vector<StoredObject> unfinished() const;
  virtual void remove_unfinished(const StoredObject& object);  // one of these
  // Memory of which one writer at a time makes use (see writer_memory). Without, each writer takes its own.
  virtual void lend_memory(std::span<std::byte> memory);
  virtual void give_up();  // calls under way fail soon, and those to come at once: the process is ending
};

// Throws IoError, and DataError where the object has more bytes than `most`.
inline constexpr int64_t kMostObjectText = int64_t{1} << 30;
std::string read_text(const ObjectReader& object, int64_t most = kMostObjectText);

// By address. "s3://bucket/prefix": an S3Store; a directory's path: a DiskStore. Here is where a store of
// another kind is added.
std::shared_ptr<Store> open_store(const std::string& address);
bool is_remote(const std::string& address);  // has no path on this machine
// What a writer of an object of so many bytes keeps in memory there, beside what it is given.
int64_t writer_memory(const std::string& address, int64_t bytes);
// Objects of a store that is far, through the machine's cache (cache/read_ahead.h).
std::shared_ptr<ReadAhead> open_cached(const StoreRef& store);
std::filesystem::path cache_directory();  // as StorageOptions say
// How this process reaches stores over a network from here on, as its config says.
void use_storage(const StorageOptions& options);
// Of a remote address "s3://bucket/a/b": "s3://bucket/a" and "b".
std::pair<std::string, std::string> split_address(const std::string& address);

// A store that is shared: a manifest that was read from one is used after the call that opened it. Anything
// that takes one takes the path of a directory as well.
class StoreRef {
 public:
  StoreRef(std::shared_ptr<Store> store) : store_(std::move(store)) {}  // NOLINT: see above
  StoreRef(const std::filesystem::path& directory) : store_(open_store(directory.string())) {}  // NOLINT
  Store& operator*() const { return *store_; }
  Store* operator->() const { return store_.get(); }
  const std::shared_ptr<Store>& shared() const { return store_; }

 private:
  std::shared_ptr<Store> store_;
};

}  // namespace tandem
