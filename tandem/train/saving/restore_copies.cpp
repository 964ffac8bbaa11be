#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/comm/shared_region.h"
#include "tandem/train/model_state.h"
#include "tandem/train/saving/memory_copies.h"

namespace tandem {
namespace {

constexpr int64_t kChunk = int64_t{4} << 20;  // of a part on its way to another node

class PartReader final : public ObjectReader {
 public:
  PartReader(std::string name, std::span<const std::byte> data) : name_(std::move(name)), data_(data) {}
  int64_t size() const override { return static_cast<int64_t>(data_.size()); }
  std::string description() const override { return name_; }
  void read_at(int64_t offset, std::span<std::byte> dst) const override {
    if (offset < 0 || offset > size() || static_cast<int64_t>(dst.size()) > size() - offset)
      throw DataError("{}: has {} bytes, wanted were {} from {} on", name_, size(), dst.size(), offset);
    std::memcpy(dst.data(), data_.data() + offset, dst.size());
  }

 private:
  std::string name_;
  std::span<const std::byte> data_;
};

// The parts of one state, as a checkpoint's files.
class PartsInMemory final : public Store {
 public:
  void add(const std::string& name, std::span<const std::byte> data) { parts_[name] = data; }
  std::string description(const std::string& name) const override { return "memory/" + name; }
  std::unique_ptr<ObjectReader> open(const std::string& name) const override {
    const auto found = parts_.find(name);
    if (found == parts_.end()) throw MissingObject("{}: is not there", description(name));
    return std::make_unique<PartReader>(description(name), found->second);
  }
  bool exists(const std::string& name) const override { return parts_.contains(name); }
  std::unique_ptr<ObjectWriter> create(const std::string& name) override { refuse(name); }
  std::vector<StoredObject> list(const std::string& /*prefix*/) const override { return {}; }
  void remove(const std::string& name) override { refuse(name); }
  int64_t free_bytes() const override { return 0; }
  bool put_new(const std::string& name, std::string_view /*text*/) override { refuse(name); }

 private:
  [[noreturn]] void refuse(const std::string& name) const {
    throw IoError("{}: copies in memory are only read", description(name));
  }
  std::map<std::string, std::span<const std::byte>> parts_;
};

// Every rank's text, by rank.
std::vector<std::string> from_all(const World& world, const std::string& text) {
  if (world.size() == 1) return {text};
  std::vector<double> sizes(static_cast<size_t>(world.size()));
  sizes[static_cast<size_t>(world.at().rank())] = static_cast<double>(text.size());
  world.sum(sizes, "copies of the state");
  std::vector<std::string> texts;
  for (int rank = 0; rank < world.size(); ++rank) {
    texts.push_back(rank == world.at().rank() ? text : std::string());
    texts.back().resize(static_cast<size_t>(sizes[static_cast<size_t>(rank)]));
    if (texts.back().empty()) continue;
    world.comms()
        ->get(Axis::World)
        ->broadcast(std::as_writable_bytes(std::span(texts.back())), rank, "copies of the state");
  }
  return texts;
}

// What a rank's node has: its number, then "attempt step world part part ...", a line each.
std::string listing(int node, const std::vector<KeptParts>& kept) {
  std::string text = fmt::format("{}\n", node);
  for (const KeptParts& file : kept) {
    text += fmt::format("{} {} {}", file.moment.attempt, file.moment.step, file.moment.world);
    for (const KeptPart& part : file.parts) text += fmt::format(" {}", part.rank);
    text += '\n';
  }
  return text;
}

using Holders = std::map<int, std::set<int>>;  // of each part: the ranks on whose nodes it is

std::map<KeptMoment, Holders> read_listings(const std::vector<std::string>& listings) {
  std::map<KeptMoment, Holders> found;
  for (size_t rank = 0; rank < listings.size(); ++rank) {
    std::istringstream lines(listings[rank]);
    std::string line;
    std::getline(lines, line);  // the node
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      KeptMoment moment;
      words >> moment.attempt >> moment.step >> moment.world;
      for (int part = 0; words >> part;) found[moment][part].insert(static_cast<int>(rank));
    }
  }
  return found;
}

// The first rank of this rank's node.
int first_here(const std::vector<std::string>& listings, int rank) {
  const auto node = [&](size_t other) { return listings[other].substr(0, listings[other].find('\n')); };
  size_t first = 0;
  while (node(first) != node(static_cast<size_t>(rank))) ++first;
  return static_cast<int>(first);
}

// One state's parts as they come together on this rank.
class Gathering {
 public:
  Gathering(const World& world, int first, const std::vector<KeptParts>& kept, const KeptMoment& moment)
      : world_(world), first_here_(first) {
    for (const KeptParts& file : kept) {
      if (file.moment != moment) continue;
      meta_ = file.meta;
      for (const KeptPart& part : file.parts) here_[part.rank] = part;
    }
  }

  std::string meta(int root) const { return from(root, std::string(meta_)); }

  // Its description; its numbers go into `store`.
  std::string take(int part, const std::set<int>& holders, PartsInMemory& store, const std::string& name) {
    const int root = *holders.begin();
    const auto own = here_.find(part);
    std::string text = from(root, own != here_.end() ? std::string(own->second.text) : "");
    std::span<const std::byte> data = own != here_.end() ? own->second.data : std::span<const std::byte>();
    if (static_cast<int>(holders.size()) < world_.size()) data = fetch(root, data, own == here_.end());
    store.add(name, data);
    return text;
  }

 private:
  std::string from(int root, std::string text) const {
    if (world_.size() == 1) return text;
    Communicator& comm = *world_.comms()->get(Axis::World);
    auto bytes = static_cast<int64_t>(text.size());
    comm.broadcast(std::as_writable_bytes(std::span(&bytes, 1)), root, "copies of the state");
    text.resize(static_cast<size_t>(bytes));
    comm.broadcast(std::as_writable_bytes(std::span(text)), root, "copies of the state");
    return text;
  }

  // To the nodes that lack it, once a node: the first rank there makes room, which the others open.
  std::span<const std::byte> fetch(int root, std::span<const std::byte> data, bool lacks) {
    Communicator& comm = *world_.comms()->get(Axis::World);
    auto bytes = static_cast<int64_t>(data.size());
    comm.broadcast(std::as_writable_bytes(std::span(&bytes, 1)), root, "copies of the state");
    if (bytes == 0) return data;
    const bool makes_room = lacks && world_.at().rank() == first_here_;
    std::shared_ptr<SharedRegion> room = makes_room ? SharedRegion::create(bytes) : nullptr;
    const std::vector<std::string> tickets = from_all(world_, room ? room->ticket() : "");
    std::vector<std::byte> chunk;
    for (int64_t at = 0; at < bytes; at += kChunk) {
      const auto size = static_cast<size_t>(std::min(kChunk, bytes - at));
      chunk.resize(size);
      if (world_.at().rank() == root) std::memcpy(chunk.data(), data.data() + at, size);
      comm.broadcast(chunk, root, "copies of the state");
      if (room) std::memcpy(room->data() + at, chunk.data(), size);
    }
    if (lacks && !room) room = SharedRegion::open(tickets[static_cast<size_t>(first_here_)], bytes);
    world_.barrier("copies of the state");
    if (!room) return data;
    fetched_.push_back(room);
    return {room->data(), static_cast<size_t>(bytes)};
  }

  const World& world_;
  const int first_here_;
  std::string_view meta_;
  std::map<int, KeptPart> here_;
  std::vector<std::shared_ptr<SharedRegion>> fetched_;
};

// The newest state that is whole, and where its parts are.
const std::pair<const KeptMoment, Holders>* newest_whole(const std::map<KeptMoment, Holders>& found) {
  for (auto state = found.rbegin(); state != found.rend(); ++state) {
    if (static_cast<int64_t>(state->second.size()) == state->first.world) return &*state;
  }
  return nullptr;
}

}  // namespace

std::optional<Manifest> restore_copies(Session& session, const World& world, const WorldInfo& info,
                                       int64_t newer_than, std::vector<Skipped>& skipped) {
  std::vector<KeptFile> files = KeptFile::open_all(std::getenv(kKeptVariable));
  std::vector<KeptParts> kept;
  for (KeptFile& file : files) {
    KeptParts parts = read_kept(file.map());
    if (!parts.parts.empty()) kept.push_back(std::move(parts));
  }
  const std::vector<std::string> listings = from_all(world, listing(info.node_rank, kept));
  const std::map<KeptMoment, Holders> found = read_listings(listings);
  const auto* state = newest_whole(found);
  if (state == nullptr || state->first.step <= newer_than) return std::nullopt;
  const auto& [moment, holders] = *state;
  const std::string name = fmt::format("step-{:08}-in-memory", moment.step);
  Gathering gathering(world, first_here(listings, world.at().rank()), kept, moment);
  auto store = std::make_shared<PartsInMemory>();
  const std::string about = gathering.meta(*holders.at(0).begin());
  std::vector<std::string> texts;
  for (const auto& [part, where] : holders)
    texts.push_back(gathering.take(part, where, *store, fmt::format("{}/{}", name, data_file_name(part))));
  std::string trouble;
  Manifest manifest;
  try {
    manifest = parse_manifest(about, name);
    std::vector<Part> parts;
    for (const std::string& text : texts) parts.push_back(parse_part(text, name));
    merge_parts(std::move(parts), manifest);
    manifest.store = StoreRef(store);
    manifest.name = name;
    manifest.sequence = -1;  // of no store
    restore(session, manifest);
  } catch (const Error& error) {
    trouble = error.what();
  }
  if (world.all(trouble.empty(), "copies of the state")) {
    manifest.store.reset();  // what it names is gone with the gathering
    return manifest;
  }
  skipped.push_back({name, trouble.empty() ? name + ": another rank could not read its part" : trouble});
  return std::nullopt;
}

}  // namespace tandem
