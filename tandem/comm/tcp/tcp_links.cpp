#include "tandem/comm/tcp/tcp_links.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMaxUnknownGuests = 128;  // who have not said for what they come
constexpr size_t kMaxGuestsForOneLink = 4;
constexpr int kAcceptsInATurn = 32;
constexpr milliseconds kGuestTime{10000};
constexpr milliseconds kNextLook{100};
constexpr milliseconds kFirstPause{5}, kLongestRetryPause{200};
// Who waits to be visited gives up after who visits, which knows more about why.
constexpr milliseconds kLateGrace{1000};

// How much may be on its way is left to the kernel, which measures it.
void send_without_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Large worlds need more open files than a process is given at first; many systems allow more.
void allow_open_files(size_t more) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = more + 512;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);  // where it cannot be, the first socket too many says so
}

Socket start_connecting(const std::string& host, int port, std::string* problem) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
      status != 0) {
    *problem = gai_strerror(status);
    return Socket();
  }
  Socket socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, list->ai_protocol));
  if (!socket.open() ||
      (::connect(socket.fd(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS)) {
    *problem = std::strerror(errno);
    socket.close();
  }
  freeaddrinfo(list);
  return socket;
}

int error_of(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

}  // namespace

struct TcpLinks::Guest {
  LinkTalk talk;
  Deadline deadline;
  bool ready = true;
};

struct TcpLinks::Visit {
  LinkName name;
  std::string host, token;
  int port = 0;
  Socket connecting;             // not yet connected
  std::optional<LinkTalk> talk;  // connected
  Deadline next_try{};           // neither
  milliseconds pause = kFirstPause;
  std::string problem;  // of the last attempt
  bool ready = true, done = false;

  bool under_way() const { return connecting.open() || talk; }
  void fail(const std::string& why) {
    problem = fmt::format("at {} port {}: {}", host, port, why);
    connecting.close();
    talk.reset();
    next_try = Clock::now() + pause;
    pause = std::min(2 * pause, kLongestRetryPause);
  }
};

TcpLinks::TcpLinks(const std::string& address, int own_rank, std::string run, const Secret& secret)
    : rank_(own_rank),
      host_(address),
      run_(std::move(run)),
      token_(Secret::random().to_hex()),
      secret_(secret),
      listener_(std::move(listen_by_name(address, 0, true).front())) {}

TcpLinks::~TcpLinks() = default;

std::string TcpLinks::ticket() const { return encode_frame({host_, std::to_string(port()), token_}); }

// The token makes it a secret of its own even where the launch has none.
std::string TcpLinks::purpose(const LinkName& name, const std::string& token) const {
  return fmt::format("link {} {} {} {} of {} at {}", axis_name(name.axis), static_cast<int>(name.use),
                     name.client, name.server, run_, token);
}

std::map<LinkName, Socket> TcpLinks::connect(const std::vector<LinkName>& names, const Waiting& waiting) {
  missing_ = {names.begin(), names.end()};
  allow_open_files(names.size() + kMaxUnknownGuests);
  plan_visits(waiting);
  while (!missing_.empty()) {
    wait_for_news();
    accept_guests();
    for (const auto& guest : guests_) {
      if (guest->ready) hear(*guest);
    }
    send_off_guests();
    for (const auto& visit : visits_) {
      if (visit->ready) go_on(*visit);
    }
    waiting.look();
    check_time(waiting);
  }
  listener_.close();
  guests_.clear();
  visits_.clear();
  return std::move(links_);
}

void TcpLinks::plan_visits(const Waiting& waiting) {
  std::map<int, std::vector<std::string>> places;
  for (const LinkName& name : missing_) {
    TANDEM_CHECK(name.client == rank_ || name.server == rank_);
    if (name.client != rank_) continue;
    std::vector<std::string>& place = places[name.server];
    if (place.empty()) {
      std::string ticket = waiting.ticket_of(name.server);
      place = take_frame(ticket).value_or(std::vector<std::string>());
      TANDEM_CHECK(place.size() == 3);
    }
    auto visit = std::make_unique<Visit>();
    visit->name = name;
    visit->host = place[0];
    visit->port = std::stoi(place[1]);
    visit->token = place[2];
    visits_.push_back(std::move(visit));
  }
}

void TcpLinks::wait_for_news() {
  std::vector<pollfd> entries{{listener_.fd(), POLLIN, 0}};
  const auto now = Clock::now();
  milliseconds limit = kNextLook;
  for (const auto& guest : guests_) entries.push_back({guest->talk.fd(), POLLIN, 0});
  for (const auto& visit : visits_) {
    if (visit->done) continue;
    if (visit->under_way()) {
      entries.push_back(visit->talk ? pollfd{visit->talk->fd(), POLLIN, 0}
                                    : pollfd{visit->connecting.fd(), POLLOUT, 0});
    } else {
      limit = std::clamp(std::chrono::ceil<milliseconds>(visit->next_try - now), milliseconds(0), limit);
    }
  }
  if (poll(entries.data(), entries.size(), static_cast<int>(limit.count())) < 0) {
    for (pollfd& entry : entries) entry.revents = 0;  // interrupted
  }
  size_t at = 1;
  for (const auto& guest : guests_) guest->ready = entries[at++].revents != 0;
  for (const auto& visit : visits_) {
    if (visit->done) continue;
    visit->ready = visit->under_way() ? entries[at++].revents != 0 : visit->next_try <= Clock::now();
  }
}

void TcpLinks::accept_guests() {
  for (int i = 0; i < kAcceptsInATurn; ++i) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open() && (errno == EMFILE || errno == ENFILE)) {
      if (guests_.empty()) {
        throw CommError(
            "tcp: too many open files for the connections with {} ranks; raise the limit (ulimit -n)",
            missing_.size());
      }
      guests_.erase(guests_.begin());
      return;
    }
    if (!socket.open()) return;
    send_without_delay(socket.fd());
    make_room();
    guests_.push_back(std::make_unique<Guest>(
        Guest{.talk = LinkTalk::listen(std::move(socket)), .deadline = Clock::now() + kGuestTime}));
  }
}

void TcpLinks::make_room() {
  const auto unknown = [](const auto& guest) { return !guest->talk.name(); };
  if (std::ranges::count_if(guests_, unknown) < static_cast<std::ptrdiff_t>(kMaxUnknownGuests)) return;
  guests_.erase(std::ranges::find_if(guests_, unknown));
}

void TcpLinks::hear(Guest& guest) {
  guest.talk.hear();
  if (guest.talk.state() == LinkTalk::State::Knocking && guest.talk.name()) welcome(guest);
  if (guest.talk.state() == LinkTalk::State::Known) keep(guest.talk);
}

// Whoever says the name of a link that is missing may be who it says.
void TcpLinks::welcome(Guest& guest) {
  const LinkName name = *guest.talk.name();
  if (name.server != rank_ || !missing_.contains(name)) {
    guest.deadline = {};
    return;
  }
  const auto rival = [&](const auto& other) {
    return other.get() != &guest && other->talk.name() == name && other->deadline != Deadline{};
  };
  if (std::ranges::count_if(guests_, rival) >= static_cast<std::ptrdiff_t>(kMaxGuestsForOneLink))
    (*std::ranges::find_if(guests_, rival))->deadline = {};
  guest.talk.answer(secret_, purpose(name, token_));
}

void TcpLinks::keep(LinkTalk& talk) {
  if (missing_.erase(*talk.name()) > 0) links_[*talk.name()] = talk.take_socket();
}

void TcpLinks::send_off_guests() {
  const auto now = Clock::now();
  std::erase_if(guests_, [&](const auto& guest) {
    const LinkTalk::State state = guest->talk.state();
    return state == LinkTalk::State::Known || state == LinkTalk::State::Over || guest->deadline <= now;
  });
}

void TcpLinks::go_on(Visit& visit) {
  if (visit.done) return;
  if (!visit.under_way()) {
    std::string problem;
    visit.connecting = start_connecting(visit.host, visit.port, &problem);
    if (!visit.connecting.open()) visit.fail(problem);
    return;
  }
  if (visit.connecting.open()) {
    if (const int error = error_of(visit.connecting); error != 0) return visit.fail(std::strerror(error));
    send_without_delay(visit.connecting.fd());
    visit.talk.emplace(
        LinkTalk::knock(std::move(visit.connecting), visit.name, secret_, purpose(visit.name, visit.token)));
  }
  visit.talk->hear();
  if (visit.talk->state() == LinkTalk::State::Over) return visit.fail(visit.talk->problem());
  if (visit.talk->state() != LinkTalk::State::Known) return;
  keep(*visit.talk);
  visit.talk.reset();
  visit.done = true;
}

void TcpLinks::check_time(const Waiting& waiting) const {
  const auto now = Clock::now();
  if (missing_.empty() || now < waiting.deadline) return;
  for (const auto& visit : visits_) {
    if (visit->done) continue;
    waiting.late(visit->name.server, visit->problem.empty()
                                         ? fmt::format("at {} port {}: no answer", visit->host, visit->port)
                                         : visit->problem);
  }
  if (now >= waiting.deadline + kLateGrace) waiting.late(missing_.begin()->client, "");
}

}  // namespace tandem
