// The bodies of the frames, and nothing but their bytes. Every parse returns nullopt for what is not exactly such a
// body; texts from the network are cut to a limit and cleaned of control characters before anyone prints them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/frame.hpp"
#include "bootstrap/group.hpp"
#include "bootstrap/secret.hpp"

namespace tensorwire::bootstrap {

inline constexpr std::uint16_t kProtocolVersion = 3;
/// Greeting, Hello, Admitted: the longest body before a peer is admitted.
inline constexpr std::size_t kMaxHandshakeBody = 1024;
inline constexpr std::size_t kMaxText = 1000;
inline constexpr std::size_t kMaxHostName = 64;
inline constexpr std::size_t kMaxReport = 4096;

struct Greeting {
  std::uint16_t version = kProtocolVersion;
  std::uint16_t master_port = 0;  ///< as the job names it; the server may listen on one of the next ports
  std::uint64_t job = 0;          ///< hash of the launcher's job identity
  bool wants_secret = false;
  Nonce nonce{};
};

struct Hello {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  std::string host;
  std::uint16_t door = 0;  ///< the port of its direct lines; 0: none
  Nonce nonce{};
  Proof proof{};
};

/// Where the other ranks find one.
struct RankPlace {
  std::string host;
  std::string address;     ///< as rank 0 sees it; of rank 0 itself empty
  std::uint16_t door = 0;  ///< as its Hello said
};

struct Welcome {
  std::vector<RankPlace> places;  ///< by rank
  Nonce lines{};                  ///< proves, with the secret, who opens a direct line
};

enum class CallKind : std::uint8_t { kAllGather = 1, kBroadcast = 2, kBarrier = 3 };

struct Contribution {
  std::uint64_t sequence = 0;
  CallKind kind{};
  std::uint32_t root = 0;  ///< of a broadcast
  Bytes payload;
};

struct Result {
  std::uint64_t sequence = 0;
  std::vector<Bytes> payloads;  ///< by rank
};

/// Doomed and Cancel name a call; Doomed says why.
struct Verdict {
  std::uint64_t sequence = 0;
  std::string text;
};

/// Failed, and Accuse, whose host and accuser the server fills in.
struct Failure {
  std::uint32_t rank = 0;
  std::string host;
  std::string reason;
  FailureKind kind = FailureKind::kDied;
  std::int32_t told_by = -1;
};

struct RollCall {
  std::uint16_t topic = 0;
};

struct ReportOf {
  std::uint16_t topic = 0;
  std::uint32_t rank = 0;  ///< whose it is; the server fills it in
  Bytes body;
};

struct Caller {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Proof proof{};
};

[[nodiscard]] Bytes encode(const Greeting& message);
[[nodiscard]] Bytes encode(const Hello& message);
[[nodiscard]] Bytes encode(const Welcome& message);
[[nodiscard]] Bytes encode(const Contribution& message);
[[nodiscard]] Bytes encode(const Result& message);
[[nodiscard]] Bytes encode(const Verdict& message);
[[nodiscard]] Bytes encode(const Failure& message);
[[nodiscard]] Bytes encode(const RollCall& message);
[[nodiscard]] Bytes encode(const ReportOf& message);
[[nodiscard]] Bytes encode(const Caller& message);
/// A text as a whole body: Waiting, Reject, Abort.
[[nodiscard]] Bytes encode_text(const std::string& text);

[[nodiscard]] std::optional<Greeting> parse_greeting(std::span<const std::byte> body);
[[nodiscard]] std::optional<Hello> parse_hello(std::span<const std::byte> body);
[[nodiscard]] std::optional<Welcome> parse_welcome(std::span<const std::byte> body, std::uint32_t world_size);
[[nodiscard]] std::optional<Contribution> parse_contribution(std::span<const std::byte> body);
[[nodiscard]] std::optional<Result> parse_result(std::span<const std::byte> body, std::uint32_t world_size);
[[nodiscard]] std::optional<Verdict> parse_verdict(std::span<const std::byte> body);
[[nodiscard]] std::optional<Failure> parse_failure(std::span<const std::byte> body);
[[nodiscard]] std::optional<RollCall> parse_roll_call(std::span<const std::byte> body);
[[nodiscard]] std::optional<ReportOf> parse_report(std::span<const std::byte> body);
[[nodiscard]] std::optional<Caller> parse_caller(std::span<const std::byte> body);
[[nodiscard]] std::string parse_text(std::span<const std::byte> body);

/// What the proofs cover: everything that either end claims. `side` is 'C' for the client's, 'S' for the server's.
[[nodiscard]] Bytes proof_message(char side, const Greeting& greeting, const Hello& hello);
/// The same for a direct line.
[[nodiscard]] Bytes proof_message(const Caller& caller);

/// Printable, one line, at most `limit` bytes.
[[nodiscard]] std::string clean_text(std::string_view text, std::size_t limit = kMaxText);

}  // namespace tensorwire::bootstrap
