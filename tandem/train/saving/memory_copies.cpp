#include "tandem/train/saving/memory_copies.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/checkpoint/take_digests.h"
#include "tandem/train/model_state.h"

namespace tandem {
namespace {

std::vector<int> nodes_of(const World& world, const WorldInfo& info) {
  std::vector<double> nodes(static_cast<size_t>(world.size()));
  nodes[static_cast<size_t>(world.at().rank())] = info.node_rank;
  world.sum(nodes, "nodes");
  return {nodes.begin(), nodes.end()};
}

std::vector<int> ranks_of(int node, const std::vector<int>& nodes) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank] == node) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

// On the next node, which the last one's is the first again; -1 where there is one node.
int holder_of(int rank, const std::vector<int>& nodes) {
  std::vector<int> order = nodes;
  std::sort(order.begin(), order.end());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  if (order.size() < 2) return -1;
  const int own = nodes[static_cast<size_t>(rank)];
  const auto next = std::upper_bound(order.begin(), order.end(), own);
  const std::vector<int> here = ranks_of(own, nodes);
  const std::vector<int> there = ranks_of(next != order.end() ? *next : order.front(), nodes);
  const auto index = static_cast<size_t>(std::find(here.begin(), here.end(), rank) - here.begin());
  return there[index % there.size()];
}

}  // namespace

std::vector<int> kept_ranks(int rank, const std::vector<int>& nodes) {
  std::vector<int> ranks = {rank};
  for (size_t other = 0; other < nodes.size(); ++other) {
    if (holder_of(static_cast<int>(other), nodes) == rank) ranks.push_back(static_cast<int>(other));
  }
  return ranks;
}

std::vector<int> kept_ranks(int rank, int world, int ranks_here) {
  std::vector<int> nodes(static_cast<size_t>(world));
  for (int i = 0; i < world; ++i) nodes[static_cast<size_t>(i)] = i / std::max(1, ranks_here);
  return kept_ranks(rank, nodes);
}

void require_kept_memory() {
  if (const char* ticket = std::getenv(kKeptVariable); ticket != nullptr && *ticket != '\0') return;
  throw ConfigError(
      "checkpoint.memory: copies lie in the memory of a launcher, which outlives the ranks, and there is "
      "none; "
      "start it with tandem launch, or set checkpoint.memory=0");
}

MemoryCopies::Peers MemoryCopies::find_peers(const CompiledStep& step, const World& world,
                                             const WorldInfo& info) {
  const int rank = world.at().rank();
  const std::vector<int> nodes = nodes_of(world, info);
  const std::vector<int> here = ranks_of(info.node_rank, nodes);
  const PartSize own = part_size(step);
  std::vector<double> texts(nodes.size()), data(nodes.size());
  texts[static_cast<size_t>(rank)] = static_cast<double>(own.text);
  data[static_cast<size_t>(rank)] = static_cast<double>(own.data);
  world.sum(texts, "sizes of parts");
  world.sum(data, "sizes of parts");
  Peers peers;
  peers.index = static_cast<int>(std::find(here.begin(), here.end(), rank) - here.begin());
  peers.num_here = static_cast<int>(here.size());
  peers.holder = holder_of(rank, nodes);
  for (const int other : kept_ranks(rank, nodes)) {
    const auto i = static_cast<size_t>(other);
    peers.parts.push_back({other, static_cast<int64_t>(texts[i]), static_cast<int64_t>(data[i])});
  }
  return peers;
}

MemoryCopies::MemoryCopies(const CompiledStep& step, const World& world, const WorldInfo& info)
    : world_(world),
      attempt_(info.restart_count),
      peers_(find_peers(step, world, info)),
      layout_(peers_.parts),
      files_(KeptFile::open_all(std::getenv(kKeptVariable))) {
  const auto own = static_cast<size_t>(peers_.index * kKeptFiles);
  TANDEM_CHECK(own + 1 < files_.size(), "memory is kept for {} files", files_.size());
  const auto moment = [&](size_t file) {
    const KeptMoment found = read_kept(files_[file].map()).moment;
    files_[file].unmap();
    return found;
  };
  turn_ = moment(own) > moment(own + 1) ? 1 : 0;  // the older one first
}

// Each sends while it receives, so that nobody waits for a peer that does the same.
void MemoryCopies::exchange(std::span<std::byte> file) {
  if (peers_.holder < 0) return;
  Communicator& comm = *world_.comms()->get(Axis::World);
  std::exception_ptr failure;
  std::jthread sender([&] {
    try {
      comm.send(layout_.text(file, 0), peers_.holder, "copy of the state");
      comm.send(layout_.data(file, 0), peers_.holder, "copy of the state");
    } catch (...) {
      failure = std::current_exception();
    }
  });
  for (size_t part = 1; part < layout_.num_parts(); ++part) {
    comm.recv(layout_.text(file, part), layout_.rank(part), "copy of the state");
    comm.recv(layout_.data(file, part), layout_.rank(part), "copy of the state");
  }
  sender.join();
  if (failure) std::rethrow_exception(failure);
}

void MemoryCopies::keep(const CheckpointMeta& meta, Session& session) {
  const std::span<std::byte> file =
      files_[static_cast<size_t>(peers_.index * kKeptFiles + turn_)].map(layout_.bytes());
  layout_.begin(file);
  const std::span<std::byte> data = layout_.data(file, 0);
  const StateViews state = state_views(session, data);
  std::vector<ShardPlace> places;
  Part part = describe_part(world_.at().rank(), state.views, places);
  take_digests(state.views, places, data, part, &session.pool());
  const std::string text = render_part(part);
  const std::span<std::byte> room = layout_.text(file, 0);
  TANDEM_CHECK(text.size() == room.size(), "a part's description has {} bytes, planned were {}", text.size(),
               room.size());
  std::memcpy(room.data(), text.data(), text.size());
  exchange(file);
  Manifest about;
  about.meta = meta;
  layout_.commit(file, {attempt_, meta.step, world_.size()}, render_manifest(about));
  turn_ = 1 - turn_;
  // Of ranks that this attempt does not have: since the copy before this one nobody needs them any more.
  if (++num_kept_ == 2 && peers_.index == 0) {
    for (size_t i = static_cast<size_t>(peers_.num_here * kKeptFiles); i < files_.size(); ++i)
      files_[i].map(0);
  }
}

}  // namespace tandem
