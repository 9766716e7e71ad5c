// Rank 0 at the rendezvous: one poll loop over the listener, strangers (connected, not yet proved) and members.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "bootstrap/messages.hpp"
#include "bootstrap/names.hpp"
#include "bootstrap/rendezvous.hpp"

namespace tensorwire::bootstrap {

namespace {

constexpr Ps kBindPause = 100 * kMillisecond;
constexpr Ps kFarewellBound = 500 * kMillisecond;

/// True when the port is held by the server of a job that looks like ours (a second start, or the last run's).
bool held_by_twin(const Address& address, std::uint16_t master_port, std::uint64_t job) {
  int error = 0;
  const Ps deadline = monotonic_now() + kGreetingBound;
  const Socket socket = connect_to(address, deadline, error);
  FrameReader reader{kMaxHandshakeBody};
  std::array<std::byte, kMaxHandshakeBody> buffer;
  while (socket && wait_for(socket.fd(), POLLIN, deadline)) {
    const IoResult io = read_some(socket, buffer);
    if (io.status == IoStatus::kWouldBlock) continue;
    if (io.status != IoStatus::kDone) return false;
    reader.append(std::span{buffer}.first(io.bytes));
    if (const auto frame = reader.next()) {
      const auto greeting = frame->type == FrameType::kGreeting ? parse_greeting(frame->body) : std::nullopt;
      return greeting && greeting->master_port == master_port && greeting->job == job;
    }
    if (reader.broken()) return false;
  }
  return false;
}

/// Listens on `address`, or on every interface where that address is not this machine's own (a service name, NAT).
Socket listen_here(const Address& address, int& error) {
  Socket socket = listen_on(address, error);
  if (!socket && error == EADDRNOTAVAIL) socket = listen_on(address.any(), error);
  return socket;
}

Socket open_listener(const GroupOptions& options, Ps deadline, std::uint16_t& port_taken) {
  const std::vector<Address> addresses = resolve(options.master_address, deadline);
  const std::string what =
      fmt::format("listen for the other ranks at {}:{}", options.master_address, options.master_port);
  int error = EADDRNOTAVAIL;
  for (;;) {
    bool twin = false;
    for (int i = 0; i < kPortsTried && !twin; ++i) {
      const auto port = static_cast<std::uint16_t>(options.master_port + i);
      if (port < options.master_port) break;  // past 65535
      for (const Address& address : addresses) {
        Socket socket = listen_here(address.with_port(port), error);
        if (socket) {
          port_taken = port;
          return socket;
        }
      }
      if (error != EADDRINUSE) throw system_error(what, error, "Choose another MASTER_ADDR or MASTER_PORT");
      twin = std::ranges::any_of(addresses, [&](const Address& address) {
        return held_by_twin(address.with_port(port), options.master_port, job_hash(options.job));
      });
    }
    if (monotonic_now() >= deadline) {
      throw system_error(
          what, error,
          twin ? "Another run of this job holds the port: stop it, or choose another MASTER_PORT"
               : fmt::format("It and the next {} ports are taken: choose another MASTER_PORT", kPortsTried - 1));
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds{kBindPause / kNanosecond});
  }
}

struct Stranger {
  Socket socket;
  std::string from;
  Greeting greeting;
  Ps deadline = 0;
  FrameReader reader{kMaxHandshakeBody};
};

struct Member {
  Link link;
  RankPlace place;
};

class Server {
 public:
  explicit Server(const GroupOptions& options)
      : options_(options),
        deadline_(monotonic_now() + options.timeout),
        members_(static_cast<std::size_t>(options.world_size)),
        host_(own_host_name()) {}

  /// Whoever opened the port ahead may need it again.
  ~Server() {
    if (options_.listener) std::swap(listener_, *options_.listener);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Joined run() {
    std::uint16_t port = 0;
    if (options_.listener) {
      std::swap(listener_, *options_.listener);
      port = options_.master_port;
    } else {
      listener_ = open_listener(options_, deadline_, port);
    }
    if (port != options_.master_port) {
      log_info(fmt::format("port {} is taken by another program; the ranks meet at {}", options_.master_port, port));
    }
    while (!missing().empty()) {
      if (monotonic_now() >= deadline_) fail(timed_out());
      step();
    }
    return welcome();
  }

 private:
  void step() {
    std::vector<pollfd> entries{{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
    Ps wake = deadline_;
    for (const Stranger& stranger : strangers_) {
      entries.push_back({.fd = stranger.socket.fd(), .events = POLLIN, .revents = 0});
      wake = std::min(wake, stranger.deadline);
    }
    std::vector<int> member_ranks;
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      if (!members_[rank]) continue;
      entries.push_back({.fd = members_[rank]->link.socket.fd(), .events = POLLIN, .revents = 0});
      member_ranks.push_back(static_cast<int>(rank));
    }
    if (poll(entries.data(), entries.size(), poll_milliseconds(wake)) < 0) return;

    std::size_t at = 1;
    for (auto stranger = strangers_.begin(); stranger != strangers_.end(); ++at) {
      const bool keep = hear(*stranger, entries[at].revents != 0);
      stranger = keep ? std::next(stranger) : strangers_.erase(stranger);
    }
    for (const int rank : member_ranks) {
      if (entries[at++].revents != 0) watch(rank);
    }
    if (entries[0].revents != 0) accept_stranger();
  }

  void accept_stranger() {
    Stranger stranger;
    stranger.socket = accept_from(listener_, stranger.from);
    if (!stranger.socket) return;
    // A crowd of silent connections must not keep the ranks out: the oldest goes.
    if (strangers_.size() >= kMaxStrangers) strangers_.pop_front();
    stranger.deadline = monotonic_now() + kHelloBound;
    stranger.greeting = {.version = kProtocolVersion,
                         .master_port = options_.master_port,
                         .job = job_hash(options_.job),
                         .wants_secret = !options_.secret.empty(),
                         .nonce = fresh_nonce()};
    // A fresh connection always has room for one small frame.
    (void)write_some(stranger.socket, *encode_frame(FrameType::kGreeting, encode(stranger.greeting)));
    strangers_.push_back(std::move(stranger));
  }

  /// False when the connection is done as a stranger: gone, dropped, or a member now.
  bool hear(Stranger& stranger, bool readable) {
    if (!readable) return monotonic_now() < stranger.deadline;
    std::array<std::byte, kMaxHandshakeBody> buffer;
    const IoResult io = read_some(stranger.socket, buffer);
    if (io.status == IoStatus::kWouldBlock) return monotonic_now() < stranger.deadline;
    if (io.status != IoStatus::kDone) return false;
    stranger.reader.append(std::span{buffer}.first(io.bytes));
    const auto frame = stranger.reader.next();
    if (!frame) return !stranger.reader.broken() && monotonic_now() < stranger.deadline;
    const auto hello = frame->type == FrameType::kHello ? parse_hello(frame->body) : std::nullopt;
    if (hello) judge(stranger, *hello);
    return false;
  }

  void judge(Stranger& stranger, const Hello& hello) {
    const std::string who = fmt::format("rank {} on {}", hello.rank, hello.host);
    const Proof expected = prove(options_.secret, proof_message('C', stranger.greeting, hello));
    if (!same_proof(expected, hello.proof)) {
      note_ = fmt::format("; a process at {} gave a wrong secret", stranger.from);
      send_now(stranger.socket, FrameType::kReject,
               encode_text("the shared secret is wrong: TENSORWIRE_SECRET must be the same on all ranks"));
      return;
    }
    if (hello.world_size != static_cast<std::uint32_t>(options_.world_size)) {
      const std::string why = fmt::format("the ranks disagree about the world size: rank 0 on {} says {}, {} says {}",
                                          host_, options_.world_size, who, hello.world_size);
      send_now(stranger.socket, FrameType::kReject, encode_text(why));
      fail({"join the group", why, "Start all ranks with the same WORLD_SIZE"});
    }
    if (hello.rank >= hello.world_size || hello.rank == 0 || members_[hello.rank]) {
      const std::string& first =
          hello.rank < members_.size() && hello.rank > 0 ? members_[hello.rank]->place.host : host_;
      const std::string why =
          hello.rank >= hello.world_size
              ? fmt::format("{} is outside of a world of {}", who, hello.world_size)
              : fmt::format("rank {} was started twice: on {} and on {}", hello.rank, first, hello.host);
      send_now(stranger.socket, FrameType::kReject, encode_text(why));
      fail({"join the group", why, "Give every process its own RANK"});
    }
    admit(stranger, hello);
  }

  void admit(Stranger& stranger, const Hello& hello) {
    const Proof proof = prove(options_.secret, proof_message('S', stranger.greeting, hello));
    send_now(stranger.socket, FrameType::kAdmitted, proof);
    members_[hello.rank] =
        Member{{static_cast<int>(hello.rank), std::move(stranger.socket), std::move(stranger.reader)},
               {hello.host, stranger.from, hello.door}};
    const std::vector<int> still_missing = missing();
    if (!still_missing.empty()) tell_members(FrameType::kWaiting, encode_text(rank_list(still_missing)));
  }

  /// A member has nothing to say before it is welcome: whatever is readable is its end.
  void watch(int rank) {
    std::byte byte;
    const IoResult io = read_some(members_[static_cast<std::size_t>(rank)]->link.socket, {&byte, 1});
    if (io.status == IoStatus::kWouldBlock) return;
    const std::string name = fmt::format("rank {} on {}", rank, members_[static_cast<std::size_t>(rank)]->place.host);
    const std::vector<int> still_missing = missing();
    members_[static_cast<std::size_t>(rank)].reset();
    fail({"join the group",
          fmt::format("{} died or gave up while {} of {} was still missing{}", name, rank_list(still_missing),
                      options_.world_size, note_),
          "Look at its log"});
  }

  Joined welcome() {
    Welcome welcome{{{host_, {}, 0}}, fresh_nonce()};
    for (std::size_t rank = 1; rank < members_.size(); ++rank) welcome.places.push_back(members_[rank]->place);
    tell_members(FrameType::kWelcome, encode(welcome));
    Joined joined;
    for (RankPlace& place : welcome.places) joined.hosts.push_back(std::move(place.host));
    for (std::size_t rank = 1; rank < members_.size(); ++rank) joined.links.push_back(std::move(members_[rank]->link));
    return joined;
  }

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      if (!members_[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  [[nodiscard]] ErrorParts timed_out() const {
    return {"join the group",
            fmt::format("{} of {} did not come within {}{}", rank_list(missing()), options_.world_size,
                        format_duration(options_.timeout), note_),
            fmt::format("Start every rank, and let them reach {}:{}", options_.master_address, options_.master_port)};
  }

  /// Everyone who is in learns the reason before this rank gives up.
  [[noreturn]] void fail(ErrorParts parts) {
    tell_members(FrameType::kReject, encode_text(parts.why));
    throw Error{std::move(parts)};
  }

  void tell_members(FrameType type, const Bytes& body) {
    for (const auto& member : members_) {
      if (member) send_now(member->link.socket, type, body);
    }
  }

  /// Handshake frames are small and the buffers empty; a member that takes nothing for so long is noticed elsewhere.
  static void send_now(const Socket& socket, FrameType type, std::span<const std::byte> body) {
    const EncodedFrame frame = encode_frame(type, body);
    std::span<const std::byte> rest{*frame};
    const Ps deadline = monotonic_now() + kFarewellBound;
    while (!rest.empty()) {
      const IoResult io = write_some(socket, rest);
      if (io.status == IoStatus::kError) return;
      if (io.status == IoStatus::kWouldBlock && !wait_for(socket.fd(), POLLOUT, deadline)) return;
      rest = rest.subspan(io.bytes);
    }
  }

  const GroupOptions& options_;
  Ps deadline_;
  Socket listener_;
  std::list<Stranger> strangers_;
  std::vector<std::optional<Member>> members_;  // by rank; [0] stays empty
  std::string host_;
  std::string note_;  // what went wrong with strangers, for the error of a time-out
};

}  // namespace

Joined serve_rendezvous(const GroupOptions& options) { return Server{options}.run(); }

}  // namespace tensorwire::bootstrap
