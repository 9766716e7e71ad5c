// Rank 0's side; star_member.cpp has the others'.
#include "cli/mesh/star.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "bootstrap/messages.hpp"
#include "bootstrap/rendezvous.hpp"
#include "cli/mesh/star_handshake.hpp"

namespace tensorwire::cli {
namespace {

using bootstrap::FrameType;
using bootstrap::GroupOptions;
using bootstrap::Socket;

constexpr Ps kHandshakeBound = 2 * kSecond;
constexpr Ps kSendBound = 5 * kSecond;
/// How soon an interrupt is seen.
constexpr Ps kLongestPoll = 100 * kMillisecond;

Socket listen_for_members(const GroupOptions& options) {
  const auto addresses = bootstrap::resolve(options.master_address, monotonic_now() + options.timeout);
  int error = EADDRNOTAVAIL;
  for (int i = 0; i < bootstrap::kPortsTried; ++i) {
    const auto port = static_cast<std::uint16_t>(options.master_port + i);
    if (port < options.master_port) break;  // past 65535
    for (const bootstrap::Address& address : addresses) {
      for (const auto& place : {address.with_port(port), address.any().with_port(port)}) {
        Socket socket = bootstrap::listen_on(place, error);
        if (socket) return socket;
        if (error != EADDRNOTAVAIL) break;  // the address is this host's, or the port is taken
      }
    }
    if (error != EADDRINUSE) break;
  }
  throw system_error(fmt::format("listen for the other ranks at {}:{}", options.master_address, options.master_port),
                     error, "Start rank 0 on that host, or choose another --master-addr or --master-port");
}

}  // namespace

Star::Star(const GroupOptions& options, JsonLine own, const volatile std::sig_atomic_t& stop,
           const std::function<void(int)>& tell)
    : members_(static_cast<std::size_t>(options.world_size)), stop_(stop) {
  members_[0].line = std::move(own);
  members_[0].host = bootstrap::own_host_name();
  if (options.world_size == 1) return;
  const Socket listener = listen_for_members(options);
  const Ps deadline = monotonic_now() + options.timeout;
  int told = 1;
  tell(told);
  while (missing() > 0 && monotonic_now() < deadline && !interrupted()) {
    const Ps until = std::min(deadline, monotonic_now() + kLongestPoll);
    if (bootstrap::wait_for(listener.fd(), POLLIN, until)) {
      std::string from;
      Socket socket = bootstrap::accept_from(listener, from);
      if (socket) admit(std::move(socket), options);
    }
    drop_who_left();
    if (size() - missing() != told) tell(told = size() - missing());
  }
  for (int rank = 0; rank < size(); ++rank) {
    Member& member = members_[index(rank)];
    if (!member.line) member.lost = fmt::format("it did not come within {}{}", format_duration(options.timeout), note_);
  }
}

void Star::admit(Socket socket, const GroupOptions& options) {
  JsonLine line{std::move(socket)};
  const Ps deadline = monotonic_now() + kHandshakeBound;
  const StarGreeting greeting = greeting_of(options);
  if (!line.send_frame(FrameType::kGreeting, bootstrap::encode(greeting), deadline)) return;
  const auto frame = line.receive_frame(deadline);
  const auto hello = frame && frame->type == FrameType::kHello ? bootstrap::parse_hello(frame->body) : std::nullopt;
  if (!hello) return;  // not one of ours
  const auto refuse = [&](const std::string& why) {
    note_ = fmt::format("; one at {} was refused: {}", hello->host, why);
    static_cast<void>(line.send_frame(FrameType::kReject, bootstrap::encode_text(why), deadline));
  };
  const auto expected = bootstrap::prove(options.secret, bootstrap::proof_message('C', greeting, *hello));
  if (!bootstrap::same_proof(expected, hello->proof)) {
    return refuse("the shared secret is wrong: TENSORWIRE_SECRET must be the same on all ranks");
  }
  if (hello->world_size != static_cast<std::uint32_t>(size())) {
    return refuse(fmt::format("it says a world size of {}, rank 0 says {}", hello->world_size, size()));
  }
  if (hello->rank == 0 || hello->rank >= hello->world_size || members_[hello->rank].line) {
    return refuse(fmt::format("there is a rank {} already, or no such rank", hello->rank));
  }
  const auto proof = bootstrap::prove(options.secret, bootstrap::proof_message('S', greeting, *hello));
  if (!line.send_frame(FrameType::kAdmitted, proof, deadline)) return;
  members_[hello->rank] = {std::move(line), hello->host, {}};
}

/// A member has nothing to say before it is asked: whatever is readable is its end. It may come again.
void Star::drop_who_left() {
  for (int rank = 1; rank < size(); ++rank) {
    Member& member = members_[index(rank)];
    if (!member.line) continue;
    if (bootstrap::wait_for(member.line->fd(), POLLIN, 0)) static_cast<void>(member.line->take());
    if (!member.line->is_open()) member = {};
  }
}

int Star::missing() const {
  return static_cast<int>(std::ranges::count_if(members_, [](const Member& member) { return !member.line; }));
}

std::vector<int> Star::present() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (members_[index(rank)].lost.empty()) ranks.push_back(rank);
  }
  return ranks;
}

void Star::give_up(int rank, std::string why) {
  members_[index(rank)].lost = std::move(why);
  members_[index(rank)].line.reset();
}

std::map<int, StarAnswer> Star::ask(const std::map<int, nlohmann::json>& requests, Ps bound) {
  std::map<int, StarAnswer> answers;
  std::vector<int> waiting;
  const std::string what = requests.empty() ? "" : requests.begin()->second.value("op", "");
  for (const auto& [rank, request] : requests) {
    Member& member = members_[index(rank)];
    if (member.lost.empty() && !member.line->send(request, monotonic_now() + kSendBound)) {
      give_up(rank, "its process died, or its connection to rank 0 broke");
    }
    if (member.lost.empty()) {
      waiting.push_back(rank);
    } else {
      answers[rank].error = member.lost;
    }
  }
  const Ps deadline = monotonic_now() + bound;
  while (!waiting.empty()) {
    std::vector<pollfd> entries;
    for (const int rank : waiting) {
      entries.push_back({.fd = members_[index(rank)].line->fd(), .events = POLLIN, .revents = 0});
    }
    poll(entries.data(), entries.size(),
         bootstrap::poll_milliseconds(std::min(deadline, monotonic_now() + kLongestPoll)));
    std::erase_if(waiting, [&](int rank) {
      JsonLine& line = *members_[index(rank)].line;
      if (auto answer = line.take()) {
        answers[rank].error = answer->value("error", "");
        answers[rank].why = answer->value("why", "");
        answers[rank].body = *std::move(answer);
      } else if (!line.is_open()) {
        give_up(rank, fmt::format("its process died while it was asked to {}", what));
        answers[rank].error = lost(rank);
      } else {
        return false;
      }
      return true;
    });
    if (waiting.empty() || (monotonic_now() < deadline && !interrupted())) continue;
    for (const int rank : waiting) {
      give_up(rank,
              interrupted() ? "interrupted" : fmt::format("it did not {} within {}", what, format_duration(bound)));
      answers[rank].error = lost(rank);
    }
    waiting.clear();
  }
  return answers;
}

std::map<int, StarAnswer> Star::ask_all(const nlohmann::json& request, Ps bound) {
  std::map<int, nlohmann::json> requests;
  for (const int rank : present()) requests[rank] = request;
  return ask(requests, bound);
}

void Star::dismiss(int status) {
  for (Member& member : members_) {
    if (member.line)
      static_cast<void>(member.line->send({{"op", "end"}, {"status", status}}, monotonic_now() + kSecond));
  }
}

}  // namespace tensorwire::cli
