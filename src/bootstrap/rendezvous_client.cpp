// Every rank but 0 at the rendezvous: find the server of this job, prove the secret, wait for the others.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "bootstrap/messages.hpp"
#include "bootstrap/rendezvous.hpp"

namespace tensorwire::bootstrap {

namespace {

constexpr Ps kRetryPause = 50 * kMillisecond;
constexpr Ps kConnectBound = 3 * kSecond;
/// Of one rank in the Welcome.
constexpr std::size_t kMaxPlace = 2 * (kMaxHostName + 4) + 2;

class Client {
 public:
  explicit Client(const GroupOptions& options)
      : options_(options), deadline_(monotonic_now() + options.timeout), link_{0, {}, FrameReader{kMaxHandshakeBody}} {}

  Joined run() {
    find_server();
    say_hello();
    check_server();
    return wait_for_all();
  }

 private:
  void find_server() {
    std::vector<Address> addresses = resolve(options_.master_address, deadline_);
    for (const std::string& more : options_.more_addresses)
      std::ranges::copy(resolve(more, deadline_), std::back_inserter(addresses));
    while (!look_once(addresses)) {
      if (monotonic_now() >= deadline_) {
        throw Error{what(),
                    fmt::format("rank 0 was not there within {} (last: {})", format_duration(options_.timeout), note_),
                    "Start rank 0 there, open the port, or check that no rank was started twice"};
      }
      std::this_thread::sleep_for(std::chrono::nanoseconds{kRetryPause / kNanosecond});
    }
  }

  /// One look at the master port and those after it, on every address.
  bool look_once(const std::vector<Address>& addresses) {
    for (const Address& address : addresses) {
      for (int i = 0; i < kPortsTried; ++i) {
        const auto port = static_cast<std::uint16_t>(options_.master_port + i);
        if (port < options_.master_port) break;  // past 65535
        int error = 0;
        link_.socket = connect_to(address.with_port(port), std::min(deadline_, monotonic_now() + kConnectBound), error);
        if (link_.socket && greeted(port)) return true;
        if (error != 0 && (i == 0 || error != ECONNREFUSED)) note_ = errno_text(error);
        // Packets that vanish cost seconds: no further port of this address in this round.
        if (error != 0 && error != ECONNREFUSED) break;
      }
    }
    return false;
  }

  bool greeted(std::uint16_t port) {
    link_.reader = FrameReader{kMaxHandshakeBody};
    const auto frame = next_frame(std::min(deadline_, monotonic_now() + kGreetingBound));
    const auto greeting = frame && frame->type == FrameType::kGreeting ? parse_greeting(frame->body) : std::nullopt;
    if (!greeting) {
      note_ = fmt::format("port {} is held by another program", port);
      return false;
    }
    if (greeting->master_port != options_.master_port || greeting->job != job_hash(options_.job)) {
      note_ = fmt::format("port {} serves another job", port);
      return false;
    }
    greeting_ = *greeting;
    return true;
  }

  void say_hello() {
    if (greeting_.version != kProtocolVersion) {
      throw Error{
          what(),
          fmt::format("rank 0 speaks version {} of the protocol, this rank {}", greeting_.version, kProtocolVersion),
          "Use one version of Tensorwire on all ranks"};
    }
    if (greeting_.wants_secret != !options_.secret.empty()) {
      throw Error{what(),
                  greeting_.wants_secret ? "rank 0 asks for a shared secret and this rank has none"
                                         : "this rank has a shared secret and rank 0 has none",
                  "Set TENSORWIRE_SECRET or TENSORWIRE_SECRET_FILE on all ranks, or on none"};
    }
    hello_ = {.rank = static_cast<std::uint32_t>(options_.rank),
              .world_size = static_cast<std::uint32_t>(options_.world_size),
              .host = own_host_name(),
              .door = open_door(),
              .nonce = fresh_nonce(),
              .proof = {}};
    hello_.proof = prove(options_.secret, proof_message('C', greeting_, hello_));
    (void)write_some(link_.socket, *encode_frame(FrameType::kHello, encode(hello_)));
  }

  /// Its port. Rank 0 tells the others at which address it sees this rank.
  std::uint16_t open_door() {
    if (options_.world_size < 3) return 0;
    int error = 0;
    door_ = listen_on(local_address(link_.socket).any().with_port(0), error);
    if (!door_) throw system_error("open a port for direct lines", error);
    return local_address(door_).port();
  }

  void check_server() {
    const Frame frame = frame_or_throw();
    const Proof expected = prove(options_.secret, proof_message('S', greeting_, hello_));
    Proof given{};
    const bool well_formed = frame.type == FrameType::kAdmitted && frame.body.size() == given.size();
    if (well_formed) std::ranges::copy(frame.body, given.begin());
    if (!well_formed || !same_proof(expected, given)) {
      throw Error{what(), "what answers there does not know the shared secret", "Check who listens on that port"};
    }
  }

  Joined wait_for_all() {
    // The list of hosts grows with the world.
    link_.reader.set_max_body(kMaxHandshakeBody + static_cast<std::size_t>(options_.world_size) * kMaxPlace);
    for (;;) {
      const Frame frame = frame_or_throw();
      if (frame.type == FrameType::kWaiting) {
        missing_ = parse_text(frame.body);
        continue;
      }
      const auto welcome = frame.type == FrameType::kWelcome
                               ? parse_welcome(frame.body, static_cast<std::uint32_t>(options_.world_size))
                               : std::nullopt;
      if (!welcome) throw Error{what(), "rank 0 sent what does not belong into the rendezvous"};
      return joined_by(*welcome);
    }
  }

  Joined joined_by(const Welcome& welcome) {
    Joined joined;
    const Address centre = remote_address(link_.socket);
    for (const RankPlace& place : welcome.places) {
      joined.hosts.push_back(place.host);
      Address& door = joined.doors.emplace_back();
      if (place.door == 0) continue;
      // Who came to rank 0 by the loopback interface is on its host: there this rank finds it, too.
      const Address seen = resolve(place.address, 0).front();
      door = (seen.is_loopback() ? centre : seen).with_port(place.door);
    }
    joined.door = std::move(door_);
    joined.line_secret.assign(reinterpret_cast<const char*>(welcome.lines.data()), welcome.lines.size());
    joined.line_secret += options_.secret;
    joined.links.push_back(std::move(link_));
    return joined;
  }

  Frame frame_or_throw() {
    auto frame = next_frame(deadline_);
    if (frame && frame->type == FrameType::kReject) throw Error{"join the group", parse_text(frame->body)};
    if (frame) return *std::move(frame);
    if (monotonic_now() < deadline_) {
      throw Error{what(), "rank 0 closed the connection before all ranks were in", "Look at the log of rank 0"};
    }
    throw Error{"join the group",
                missing_.empty() ? fmt::format("rank 0 did not answer within {}", format_duration(options_.timeout))
                                 : fmt::format("{} of {} did not come within {}", missing_, options_.world_size,
                                               format_duration(options_.timeout)),
                "Start every rank, and let them reach rank 0"};
  }

  /// nullopt: the deadline passed, or the connection ended or is not ours.
  std::optional<Frame> next_frame(Ps deadline) {
    std::array<std::byte, 4096> buffer;
    for (;;) {
      if (auto frame = link_.reader.next()) return frame;
      if (link_.reader.broken() || !wait_for(link_.socket.fd(), POLLIN, deadline)) return std::nullopt;
      const IoResult io = read_some(link_.socket, buffer);
      if (io.status == IoStatus::kClosed || io.status == IoStatus::kError) return std::nullopt;
      link_.reader.append(std::span{buffer}.first(io.bytes));
    }
  }

  [[nodiscard]] std::string what() const {
    return fmt::format("join the group as rank {} at {}:{}", options_.rank, options_.master_address,
                       options_.master_port);
  }

  const GroupOptions& options_;
  Ps deadline_;
  Link link_;
  Socket door_;
  Greeting greeting_;
  Hello hello_;
  std::string missing_;
  std::string note_ = "nothing listens there";
};

}  // namespace

Joined enter_rendezvous(const GroupOptions& options) { return Client{options}.run(); }

}  // namespace tensorwire::bootstrap
