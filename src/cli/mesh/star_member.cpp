// Every rank but 0: finding rank 0, and answering it.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/mesh/star.hpp"
#include "cli/mesh/star_handshake.hpp"

namespace tensorwire::cli {
namespace {

using bootstrap::FrameType;
using bootstrap::GroupOptions;

constexpr Ps kMemberConnectBound = 3 * kSecond;
constexpr Ps kMemberHandshakeBound = 3 * kSecond;
constexpr Ps kMemberRetryPause = 50 * kMillisecond;
constexpr Ps kMemberSendBound = 30 * kSecond;
/// The longest that rank 0 has to do with others: a step of first-contact.
constexpr Ps kMemberIdleBound = 15 * 60 * kSecond;

class Applicant {
 public:
  explicit Applicant(const GroupOptions& options) : options_(options), deadline_(monotonic_now() + options.timeout) {}

  JsonLine run() {
    const auto addresses = bootstrap::resolve(options_.master_address, deadline_);
    for (;;) {
      for (const bootstrap::Address& address : addresses) {
        for (int i = 0; i < bootstrap::kPortsTried; ++i) {
          if (auto line = knock(address, options_.master_port + i)) return *std::move(line);
        }
      }
      if (monotonic_now() >= deadline_) break;
      nap(kMemberRetryPause);
    }
    throw Error{what(),
                fmt::format("rank 0 was not there within {} (last: {})", format_duration(options_.timeout), note_),
                "Start rank 0 there with the same command, and open the port"};
  }

 private:
  std::optional<JsonLine> knock(const bootstrap::Address& address, int port) {
    if (port > UINT16_MAX) return std::nullopt;
    int error = 0;
    JsonLine line{bootstrap::connect_to(address.with_port(static_cast<std::uint16_t>(port)),
                                        std::min(deadline_, monotonic_now() + kMemberConnectBound), error)};
    if (!line.is_open()) {
      if (port == options_.master_port || error != ECONNREFUSED) note_ = errno_text(error);
      return std::nullopt;
    }
    const Ps deadline = monotonic_now() + kMemberHandshakeBound;
    const auto frame = line.receive_frame(deadline);
    const auto greeting =
        frame && frame->type == FrameType::kGreeting ? bootstrap::parse_greeting(frame->body) : std::nullopt;
    if (!greeting || greeting->master_port != options_.master_port || greeting->job != star_job(options_)) {
      note_ = fmt::format("port {} is held by another program or job", port);
      return std::nullopt;
    }
    if (!introduce(line, *greeting, deadline)) return std::nullopt;
    return line;
  }

  bool introduce(JsonLine& line, const bootstrap::Greeting& greeting, Ps deadline) {
    if (greeting.version != bootstrap::kProtocolVersion) {
      throw Error{what(), "rank 0 speaks another version of the protocol",
                  "Use one version of Tensorwire on all ranks"};
    }
    if (greeting.wants_secret != !options_.secret.empty()) {
      throw Error{what(),
                  greeting.wants_secret ? "rank 0 asks for a shared secret and this rank has none"
                                        : "this rank has a shared secret and rank 0 has none",
                  "Set TENSORWIRE_SECRET or TENSORWIRE_SECRET_FILE on all ranks, or on none"};
    }
    bootstrap::Hello hello;
    hello.rank = static_cast<std::uint32_t>(options_.rank);
    hello.world_size = static_cast<std::uint32_t>(options_.world_size);
    hello.host = bootstrap::own_host_name();
    hello.nonce = bootstrap::fresh_nonce();
    hello.proof = bootstrap::prove(options_.secret, bootstrap::proof_message('C', greeting, hello));
    if (!line.send_frame(FrameType::kHello, bootstrap::encode(hello), deadline)) return false;
    const auto answer = line.receive_frame(deadline);
    if (answer && answer->type == FrameType::kReject) throw Error{what(), bootstrap::parse_text(answer->body)};
    const auto expected = bootstrap::prove(options_.secret, bootstrap::proof_message('S', greeting, hello));
    if (answer && answer->type == FrameType::kAdmitted && std::ranges::equal(answer->body, expected)) return true;
    note_ = "rank 0 did not finish its greeting";
    return false;
  }

  [[nodiscard]] std::string what() const {
    return fmt::format("reach rank 0 as rank {} at {}:{}", options_.rank, options_.master_address,
                       options_.master_port);
  }

  const GroupOptions& options_;
  Ps deadline_;
  std::string note_ = "nothing listens there";
};

}  // namespace

JsonLine join_star(const GroupOptions& options) { return Applicant{options}.run(); }

int answer_star(JsonLine& line, const std::function<nlohmann::json(const nlohmann::json&)>& handler) {
  for (;;) {
    const auto request = line.receive(monotonic_now() + kMemberIdleBound);
    if (!request) {
      throw Error{"answer rank 0",
                  line.is_open() ? "it asked nothing for too long" : "it is gone, or gave this rank up",
                  "Look at what rank 0 says"};
    }
    if (request->value("op", "") == "end") return request->value("status", 0);
    nlohmann::json answer;
    try {
      answer = handler(*request);
    } catch (const Error& error) {
      answer = {{"error", error.what()}, {"why", error.parts().why}};
    } catch (const nlohmann::json::exception& error) {
      answer = {{"error", fmt::format("rank 0 asked what makes no sense here: {}", error.what())}};
    }
    if (!line.send(answer, monotonic_now() + kMemberSendBound)) {
      throw Error{"answer rank 0", "it is gone, or gave this rank up", "Look at what rank 0 says"};
    }
  }
}

}  // namespace tensorwire::cli
