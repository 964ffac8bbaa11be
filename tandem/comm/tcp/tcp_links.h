// How the ranks of a run come to have tcp connections with each other. Every process listens at a port of its
// own, and tells the others through the store where; of two ranks the higher one connects to the lower one. A
// connection counts once both sides have shown that they know the launch's secret (link_talk.h), and it is
// bound to what it is for.
//
// Strangers who come to the port get little memory and little time: so many are heard and no more, the oldest
// goes first, and who belongs here tries again if it went with them. Once all ranks have come, the port is
// closed for good.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tandem/comm/tcp/link_talk.h"

namespace tandem {

class TcpLinks {
 public:
  // Listens at `address`. `run` tells this start of this run from any other; the secret must outlive it.
  TcpLinks(const std::string& address, int own_rank, std::string run, const Secret& secret);
  ~TcpLinks();

  std::string ticket() const;  // what a rank needs in order to come here; for the store and nobody else
  int port() const { return local_port(listener_); }

  struct Waiting {
    Deadline deadline;
    std::function<std::string(int peer)> ticket_of;
    std::function<void()> look;                                      // every now and then; throws to give up
    std::function<void(int peer, const std::string& problem)> late;  // the time is over: throws
  };
  // Connects all of these, of which this rank is one end, and closes the port.
  std::map<LinkName, Socket> connect(const std::vector<LinkName>& names, const Waiting& waiting);

 private:
  struct Guest;  // who has come to this port
  struct Visit;  // this rank to a peer's port

  void plan_visits(const Waiting& waiting);
  void wait_for_news();
  void accept_guests();
  void make_room();
  void hear(Guest& guest);
  void welcome(Guest& guest);
  void go_on(Visit& visit);
  void keep(LinkTalk& talk);
  void send_off_guests();
  void check_time(const Waiting& waiting) const;
  std::string purpose(const LinkName& name, const std::string& token) const;

  const int rank_;
  const std::string host_, run_, token_;
  const Secret& secret_;
  Socket listener_;
  std::set<LinkName> missing_;
  std::map<LinkName, Socket> links_;
  std::vector<std::unique_ptr<Guest>> guests_;  // in the order in which they came
  std::vector<std::unique_ptr<Visit>> visits_;
};

}  // namespace tandem
