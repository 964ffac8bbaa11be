// Collectives over tcp, for groups whose ranks are on several hosts. Every pair of ranks has two connections:
// one for collectives, in which each rank sends every other one its part itself, and one for messages. The
// calling threads move the bytes; there is no other thread and, but for what is to be summed, no other copy.
// tcp_links.h makes the connections.
#pragma once

#include "tandem/comm/group_communicator.h"
#include "tandem/comm/tcp/link_events.h"
#include "tandem/comm/tcp/tcp_message.h"
#include "tandem/comm/tls/tls_channel.h"

namespace tandem {

class TcpCommunicator final : public GroupCommunicator {
 public:
  struct Links {  // with one peer; closed in this rank's own place
    Socket collectives, messages;
    std::unique_ptr<TlsChannel> collectives_tls = nullptr, messages_tls = nullptr;  // null: not encrypted
    Wire collectives_wire() const { return {collectives.fd(), collectives_tls.get()}; }
    Wire messages_wire() const { return {messages.fd(), messages_tls.get()}; }
  };
  TcpCommunicator(Group group, std::shared_ptr<Membership> membership, std::vector<Links> links, int spin_us);
  ~TcpCommunicator() override;

  int64_t memory_bytes() const override;
  std::string description() const override { return encrypted_ ? "tcp, encrypted" : "tcp"; }

 private:
  // What passes between this rank and one other during a collective.
  struct Exchange {
    Outgoing out;
    Incoming in;
    bool writable = true, readable = true, checked = false;
    bool done() const { return out.done() && in.done(); }
  };

  void do_reduce_scatter(const Call& call, const std::byte* src, const Parts& parts, DType src_dtype,
                         std::byte* dst, DType dst_dtype, SumInto into) override;
  void do_all_gather(const Call& call, const std::byte* src, std::byte* dst, const Parts& parts) override;
  void do_all_to_all(const Call& call, const std::byte* src, std::byte* dst, int64_t part_bytes) override;
  void do_broadcast(const Call& call, std::span<std::byte> data, int root) override;
  void do_send(const Call& call, std::span<const std::byte> data, int peer) override;
  void do_recv(const Call& call, std::span<std::byte> data, int peer) override;
  void do_barrier(const Call& call) override;
  void wake(const std::string& reason) override;

  MessageHeader next_header(const Call& call);  // of the next collective
  void begin(int peer, const MessageHeader& header, std::span<const std::byte> out, std::span<std::byte> in) {
    begin(peer, header, out, in, std::max<int64_t>(1, static_cast<int64_t>(in.size())));
  }
  void begin(int peer, const MessageHeader& header, std::span<const std::byte> out, std::span<std::byte> in,
             int64_t window);
  // Moves bytes until all that was begun is done. `digest` is called now and then; it returns whether it has
  // made room for more.
  template <typename Digest>
  void finish(const Call& call, const MessageHeader& header, Digest digest);
  void finish(const Call& call, const MessageHeader& header);
  bool move(const Call& call, const MessageHeader& header, int peer);
  void check_same_call(const Call& call, const MessageHeader& own, const MessageHeader& theirs, int peer);
  std::string late_ranks() const;
  [[noreturn]] void lose(const Call& call, int peer);
  void wait_for(const Call& call, int fd, bool writable, int peer);

  template <typename Do>
  void for_each_peer(Do action) const {  // beginning with the next one, so that not all begin with the same
    for (int i = 1; i < size(); ++i) action((rank() + i) % size());
  }
  const std::string& name(int peer) const { return group_.names[static_cast<size_t>(peer)]; }
  Links& link(int peer) { return links_[static_cast<size_t>(peer)]; }
  Exchange& with(int peer) { return exchanges_[static_cast<size_t>(peer)]; }

  std::vector<Links> links_;
  bool encrypted_ = false;
  std::vector<Exchange> exchanges_;
  LinkEvents events_;
  uint32_t round_ = 0;
  std::vector<uint32_t> sent_, received_;  // messages, by peer
  std::vector<std::byte> staging_;         // what others send to be summed
};

}  // namespace tandem
