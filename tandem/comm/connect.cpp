#include "tandem/comm/connect.h"

#include <sched.h>

#include <algorithm>
#include <map>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/key_store_membership.h"
#include "tandem/comm/roster.h"
#include "tandem/comm/tcp/tcp_communicator.h"
#include "tandem/comm/tcp/tcp_links.h"
#include "tandem/comm/tls/connect_encrypted.h"
#include "tandem/comm/tls/tls_channel.h"
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
  std::unique_ptr<TcpKeyStore> store;
  std::unique_ptr<KeyStoreMembership> membership;  // first to go
};

class Connector {
 public:
  Connector(const WorldInfo& world, const MeshPosition& position, const ConnectOptions& options,
            bool encrypted)
      : world_(world),
        position_(position),
        options_(options),
        is_encrypted_(encrypted),
        secret_(options.secret ? *options.secret : secret_of(world)),
        deadline_(std::chrono::steady_clock::now() + options.connect_timeout) {}

  Communicators connect() {
    auto served = std::make_shared<ServedMembership>();
    served->store =
        std::make_unique<TcpKeyStore>(world_.master_addr, world_.master_port, secret_, whom_to_serve(),
                                      remaining(), TcpKeyStore::kPatience, "rank 0", options_.while_waiting);
    store_ = served->store.get();
    prefix_ = fmt::format("{}/{}/", world_.run_id, world_.restart_count);
    roster_ = gather_roster(*store_, prefix_, this_member(world_, position_, *store_), remaining(), options_);
    std::vector<std::string> names;
    for (const Member& member : roster_) names.push_back(member.name());
    served->membership = std::make_unique<KeyStoreMembership>(
        store_->server_address(), store_->port(), secret_, prefix_ + "ended", world_.rank, std::move(names),
        remaining(), options_.while_waiting);
    Communicators result;
    result.timeout = options_.timeout;
    result.membership = std::shared_ptr<Membership>(served, served->membership.get());
    std::vector<Axis> over_tcp;
    for (Axis axis : kAxes) {
      if (position_.size(axis) == 1) continue;
      if (has_links(axis)) {
        over_tcp.push_back(axis);
      } else {
        result.axes[static_cast<size_t>(axis)] = share_memory(axis, result.membership);
      }
    }
    if (!over_tcp.empty()) connect_links(over_tcp, result);
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

  bool on_one_host(Axis axis) const {
    return std::ranges::all_of(position_.group(axis), [&](int rank) {
      return roster_[static_cast<size_t>(rank)].host_key == self().host_key;
    });
  }

  bool has_links(Axis axis) const {
    const bool one_host = on_one_host(axis);
    if (options_.transport == Transport::Shm && !one_host) {
      throw CommError("TANDEM_TRANSPORT=shm: the ranks of the {} axis are on several hosts; use auto or tcp",
                      axis_name(axis));
    }
    return options_.transport == Transport::Tcp || (options_.transport == Transport::Auto && !one_host);
  }

  Group group_of(Axis axis) const {
    Group group{std::string(axis_name(axis)), position_.index(axis), {}, options_.timeout};
    for (int rank : position_.group(axis)) group.names.push_back(roster_[static_cast<size_t>(rank)].name());
    return group;
  }

  int num_here() const {
    return static_cast<int>(std::ranges::count(roster_, self().host_key, &Member::host_key));
  }

  [[noreturn]] static void give_up_on(const std::string& member, const std::string& problem,
                                      Membership& membership) {
    if (problem.empty() || !membership.silent_ranks().empty())
      throw CommError("connecting: {}", membership.end_late(member));
    throw CommError("connecting: {}",
                    membership.end(fmt::format("{} cannot be reached {}; ranks on several hosts "
                                               "connect to each other at any free port",
                                               member, problem)));
  }

  // The connections of all axes at once, through one port.
  void connect_links(const std::vector<Axis>& axes, Communicators& result) {
    Membership& membership = *result.membership;
    TcpLinks links(reachable_address(self(), roster_), world_.rank, prefix_, secret_);
    const auto key = [&](int rank) { return fmt::format("{}links/{}", prefix_, rank); };
    const auto name_of = [&](int rank) { return roster_[static_cast<size_t>(rank)].name(); };
    store_->set(key(world_.rank), links.ticket());
    std::vector<LinkName> names;
    for (Axis axis : axes) {
      for (int peer : position_.group(axis)) {
        if (peer == world_.rank) continue;
        for (LinkUse use : {LinkUse::Collectives, LinkUse::Messages})
          names.push_back({std::min(peer, world_.rank), std::max(peer, world_.rank), axis, use});
      }
    }
    std::map<LinkName, Socket> sockets = links.connect(
        names, {.deadline = deadline_,
                .ticket_of = [&](int peer) { return get(key(peer), name_of(peer), membership); },
                .look =
                    [&] {
                      if (membership.ended()) throw CommError("connecting: {}", membership.reason());
                      if (options_.while_waiting) options_.while_waiting();
                    },
                .late = [&](int peer,
                            const std::string& problem) { give_up_on(name_of(peer), problem, membership); }});
    std::map<LinkName, std::unique_ptr<TlsChannel>> channels;
    if (is_encrypted_) channels = encrypt(sockets, membership);
    for (Axis axis : axes) {
      std::vector<TcpCommunicator::Links> own;
      for (int peer : position_.group(axis)) {
        const LinkName name{std::min(peer, world_.rank), std::max(peer, world_.rank), axis,
                            LinkUse::Collectives};
        TcpCommunicator::Links& pair = own.emplace_back();
        if (peer == world_.rank) continue;
        pair.collectives = std::move(sockets.at(name));
        const LinkName messages{name.server, name.client, axis, LinkUse::Messages};
        pair.messages = std::move(sockets.at(messages));
        pair.collectives_tls = std::move(channels[name]);
        pair.messages_tls = std::move(channels[messages]);
      }
      result.axes[static_cast<size_t>(axis)] = std::make_unique<TcpCommunicator>(
          group_of(axis), result.membership, std::move(own), spin_time_us(num_here()));
    }
  }

  // One after the other in the order of their names, which is the same for all: the first of those that are
  // left has both its ranks, so nobody waits for ever.
  std::map<LinkName, std::unique_ptr<TlsChannel>> encrypt(const std::map<LinkName, Socket>& sockets,
                                                          Membership& membership) const {
    const TlsContext context(tls_files_from_environment());
    std::map<LinkName, std::unique_ptr<TlsChannel>> channels;
    for (const auto& [name, socket] : sockets) {
      const bool serves = name.server == world_.rank;
      const std::string peer = roster_[static_cast<size_t>(serves ? name.client : name.server)].name();
      const std::string purpose = fmt::format("link {} {} {} {} of {}", axis_name(name.axis),
                                              static_cast<int>(name.use), name.client, name.server, prefix_);
      const auto give_up = [&](const CommError& error) {
        if (membership.ended()) throw CommError("connecting: {}", membership.reason());
        throw CommError("connecting: {}", membership.end(fmt::format("{}: {}", peer, error.what())));
      };
      try {
        channels[name] = std::make_unique<TlsChannel>(context, socket, serves ? Side::Server : Side::Client,
                                                      secret_, purpose, deadline_);
      } catch (const BrokenOff& error) {
        membership.awaited_reason();  // who refuses a certificate breaks off first and tells the others then
        give_up(error);
      } catch (const CommError& error) {
        give_up(error);
      }
    }
    return channels;
  }

  std::unique_ptr<Communicator> share_memory(Axis axis, const std::shared_ptr<Membership>& membership) {
    Group group = group_of(axis);
    const int size = group.size();
    const std::string prefix = fmt::format("{}{}/{}/", prefix_, group.axis, position_.group(axis)[0]);
    const int64_t bytes = WindowCommunicator::region_bytes(size);
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
                                                spin_time_us(num_here()), "shared memory");
  }

  const WorldInfo& world_;
  const MeshPosition& position_;
  const ConnectOptions& options_;
  const bool is_encrypted_;
  const Secret secret_;
  const Deadline deadline_;
  TcpKeyStore* store_ = nullptr;
  std::string prefix_;
  std::vector<Member> roster_;
};

Communicators connect_ranks(const WorldInfo& world, const MeshPosition& position,
                            const ConnectOptions& options, bool encrypted) {
  if (position.shape.world() != world.world_size) {
    throw ConfigError("mesh data {} x tensor {} x pipeline {}: needs {} ranks, but there are {} (WORLD_SIZE)",
                      position.shape.data, position.shape.tensor, position.shape.pipeline,
                      position.shape.world(), world.world_size);
  }
  TANDEM_CHECK(position.rank() == world.rank);
  if (world.world_size == 1) return {};
  return Connector(world, position, from_environment(options), encrypted).connect();
}

}  // namespace

Communicators connect(const WorldInfo& world, const MeshPosition& position, const ConnectOptions& options) {
  return connect_ranks(world, position, options, false);
}

Communicators connect_encrypted(const WorldInfo& world, const MeshPosition& position,
                                const ConnectOptions& options) {
  return connect_ranks(world, position, options, true);
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
