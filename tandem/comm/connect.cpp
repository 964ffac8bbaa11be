#include "tandem/comm/connect.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/gloo_communicator.h"
#include "tandem/comm/roster.h"
#include "tandem/comm/store_membership.h"
#include "tandem/comm/window_communicator.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

int num_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Looking for a moment is cheaper than sleeping, but only where the others can run meanwhile.
int spin_time_us(int num_ranks_here) { return num_ranks_here <= num_processors() ? 30 : 0; }

// Keeps the store that rank 0 serves open for as long as anybody is a member.
struct ServedMembership {
  std::unique_ptr<TcpStore> store;
  std::unique_ptr<StoreMembership> membership;  // first to go
};

class Connector {
 public:
  Connector(const WorldInfo& world, const MeshPosition& position, const ConnectOptions& options)
      : world_(world),
        position_(position),
        options_(options),
        secret_(options.secret ? *options.secret : secret_of(world)),
        deadline_(std::chrono::steady_clock::now() + options.connect_timeout) {}

  Communicators connect() {
    auto served = std::make_shared<ServedMembership>();
    served->store =
        std::make_unique<TcpStore>(world_.master_addr, world_.master_port, secret_, whom_to_serve(),
                                   remaining(), TcpStore::kPatience, "rank 0", options_.while_waiting);
    store_ = served->store.get();
    prefix_ = fmt::format("{}/{}/", world_.run_id, world_.restart_count);
    roster_ = gather_roster(*store_, prefix_, this_member(world_, position_, *store_), remaining(), options_);
    std::vector<std::string> names;
    for (const Member& member : roster_) names.push_back(member.name());
    served->membership = std::make_unique<StoreMembership>(store_->server_address(), store_->port(), secret_,
                                                           prefix_ + "ended", world_.rank, std::move(names),
                                                           remaining(), options_.while_waiting);
    Communicators result;
    result.timeout = options_.timeout;
    result.membership = std::shared_ptr<Membership>(served, served->membership.get());
    for (Axis axis : kAxes) {
      if (position_.size(axis) > 1) result.axes[static_cast<size_t>(axis)] = make(axis, result.membership);
    }
    return result;
  }

 private:
  milliseconds remaining() const {
    const auto left = std::chrono::ceil<milliseconds>(deadline_ - std::chrono::steady_clock::now());
    return std::max(left, milliseconds(1));
  }
  Serve whom_to_serve() const {
    if (world_.rank != 0) return Serve::No;
    return world_.hosts == Hosts::One ? Serve::OneHost : Serve::ManyHosts;
  }
  const Member& self() const { return roster_[static_cast<size_t>(world_.rank)]; }

  // What `member` is to set. Gives up as soon as a rank is gone.
  std::string get(const std::string& key, const std::string& member, Membership& membership) {
    for (;;) {
      const milliseconds left = remaining();
      if (auto value = store_->wait_for(key, std::min(left, milliseconds(200)))) return *std::move(value);
      if (membership.ended()) throw CommError("connecting: {}", membership.reason());
      if (left <= milliseconds(1)) throw CommError("connecting: {}", membership.end_late(member));
    }
  }

  std::unique_ptr<Communicator> make(Axis axis, const std::shared_ptr<Membership>& membership) {
    const std::vector<int> ranks = position_.group(axis);
    Group group{std::string(axis_name(axis)), position_.index(axis), {}, options_.timeout};
    bool one_host = true;
    for (int rank : ranks) {
      const Member& member = roster_[static_cast<size_t>(rank)];
      group.names.push_back(member.name());
      one_host = one_host && member.host_key == self().host_key;
    }
    if (options_.transport == Transport::Shm && !one_host) {
      throw CommError("TANDEM_TRANSPORT=shm: the ranks of the {} axis are on several hosts; use auto or gloo",
                      group.axis);
    }
    const std::string prefix = fmt::format("{}{}/{}/", prefix_, group.axis, ranks[0]);
    if (one_host && options_.transport != Transport::Gloo)
      return make_shm(std::move(group), prefix, membership);
    if (!device_) device_ = open_gloo_device(reachable_address(self(), roster_));
    return std::make_unique<GlooCommunicator>(std::move(group), membership, device_, *store_, prefix,
                                              remaining());
  }

  std::unique_ptr<Communicator> make_shm(Group group, const std::string& prefix,
                                         const std::shared_ptr<Membership>& membership) {
    const int size = group.size();
    const int64_t bytes = WindowCommunicator::region_bytes(size);
    const int num_here = static_cast<int>(std::ranges::count(roster_, self().host_key, &Member::host_key));
    const std::string key = prefix + "shm";
    const auto opened_key = [&](int rank) { return fmt::format("{}opened/{}", prefix, rank); };
    std::shared_ptr<SharedRegion> region;
    if (group.rank == 0) {
      region = SharedRegion::create(bytes);
      store_->set(key, region->ticket());
      for (int rank = 1; rank < size; ++rank)
        get(opened_key(rank), group.names[static_cast<size_t>(rank)], *membership);
      region->close_ticket();
    } else {
      region = SharedRegion::open(get(key, group.names[0], *membership), bytes);
      store_->set(opened_key(group.rank), "");
    }
    return std::make_unique<WindowCommunicator>(std::move(group), membership, std::move(region),
                                                spin_time_us(num_here), "shared memory");
  }

  const WorldInfo& world_;
  const MeshPosition& position_;
  const ConnectOptions& options_;
  const Secret secret_;
  const Deadline deadline_;
  TcpStore* store_ = nullptr;
  std::string prefix_;
  std::vector<Member> roster_;
  std::shared_ptr<gloo::transport::Device> device_;  // shared by the communicators of all axes
};

}  // namespace

Communicators connect(const WorldInfo& world, const MeshPosition& position, const ConnectOptions& options) {
  if (position.shape.world() != world.world_size) {
    throw ConfigError("mesh data {} x tensor {} x pipeline {}: needs {} ranks, but there are {} (WORLD_SIZE)",
                      position.shape.data, position.shape.tensor, position.shape.pipeline,
                      position.shape.world(), world.world_size);
  }
  TANDEM_CHECK(position.rank() == world.rank);
  if (world.world_size == 1) return {};
  return Connector(world, position, from_environment(options)).connect();
}

std::vector<Communicators> connect_threads(const MeshShape& shape, const ConnectOptions& options) {
  const int world_size = shape.world();
  const milliseconds timeout = from_environment(options).timeout;
  const auto membership = std::make_shared<Membership>();
  std::vector<Communicators> result(static_cast<size_t>(world_size));
  for (Communicators& communicators : result) {
    communicators.membership = membership;
    communicators.timeout = timeout;
  }
  for (Axis axis : kAxes) {
    if (shape.size(axis) == 1) continue;
    for (int rank = 0; rank < world_size; ++rank) {
      const std::vector<int> ranks = MeshPosition::of(shape, rank).group(axis);
      if (ranks[0] != rank) continue;
      Group group{std::string(axis_name(axis)), 0, {}, timeout};
      for (int member : ranks) group.names.push_back(fmt::format("rank {} (a thread)", member));
      const auto region = SharedRegion::for_threads(WindowCommunicator::region_bytes(group.size()));
      for (; group.rank < group.size(); ++group.rank) {
        auto& slot = result[static_cast<size_t>(ranks[static_cast<size_t>(group.rank)])]
                         .axes[static_cast<size_t>(axis)];
        slot = std::make_unique<WindowCommunicator>(group, membership, region, spin_time_us(world_size),
                                                    "threads");
      }
    }
  }
  return result;
}

}  // namespace tandem
