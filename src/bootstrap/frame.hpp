// How messages lie in a TCP stream: a 4-byte big-endian length, a type byte, the body. A reader refuses lengths above
// its limit before it stores a byte of them, so a stranger cannot make a rank allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tensorwire::bootstrap {

using Bytes = std::vector<std::byte>;

enum class FrameType : std::uint8_t {
  kGreeting = 1,  ///< server: who it is, its nonce
  kHello,         ///< client: who it is, its nonce and proof
  kAdmitted,      ///< server: its proof
  kWaiting,       ///< server: which ranks are still missing
  kWelcome,       ///< server: all are in; their hosts
  kReject,        ///< server: why not
  kContribution,  ///< client: its part of a collective call
  kResult,        ///< server: everyone's parts
  kCancel,        ///< client: I waited long enough for this collective call
  kDoomed,        ///< server: this collective call cannot complete, and why
  kAbort,         ///< client: I give up
  kFailed,        ///< server: a rank died, gave up or was accused
  kGoodbye,       ///< both: a clean end follows
  kAccuse,        ///< client: another rank is to blame
  kRollCall,      ///< both: tell what you are doing
  kReport,        ///< both: the answer; the server passes it on
  kCaller,        ///< on a direct line: who opened it, and its proof
};

inline constexpr std::size_t kFrameHeaderBytes = 5;

struct Frame {
  FrameType type{};
  Bytes body;
};

/// An encoded frame, shared by all the connections it is sent on.
using EncodedFrame = std::shared_ptr<const Bytes>;

[[nodiscard]] EncodedFrame encode_frame(FrameType type, std::span<const std::byte> body);

/// Cuts a byte stream into frames.
class FrameReader {
 public:
  explicit FrameReader(std::size_t max_body) noexcept : max_body_(max_body) {}

  void append(std::span<const std::byte> bytes);
  /// The next complete frame, if there is one.
  [[nodiscard]] std::optional<Frame> next();
  /// True when the stream is not ours: an unknown type or a length above the limit. Nothing more comes out then.
  [[nodiscard]] bool broken() const noexcept { return broken_; }
  /// After the handshake longer frames are allowed.
  void set_max_body(std::size_t max_body) noexcept { max_body_ = max_body; }

 private:
  std::size_t max_body_;
  Bytes buffer_;
  std::size_t consumed_ = 0;
  bool broken_ = false;
};

}  // namespace tensorwire::bootstrap
