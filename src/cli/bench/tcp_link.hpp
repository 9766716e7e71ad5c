// The communicator's link over kernel TCP: the yardstick that RDMA is held against, running the very same plan. One
// connection a pair; a message is a 16-byte header (remote offset, length, immediate; little endian) and its bytes,
// which are read straight into the scratch memory.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "cli/bench/tcp_mesh.hpp"
#include "comm/link.hpp"

namespace tensorwire::cli {

class TcpLink final : public comm::Link {
 public:
  /// Collective over `group`. @param address  as TcpMesh has it. @throws Error.
  TcpLink(bootstrap::Group& group, const comm::LinkSetup& setup, std::uint32_t address);

  [[nodiscard]] std::uint32_t scratch_key() const noexcept override { return 0; }
  [[nodiscard]] std::uint32_t key_of(const void* /*address*/, std::size_t /*bytes*/) override { return 0; }
  void forget(const void* /*address*/, std::size_t /*bytes*/) noexcept override {}
  bool post_write(const comm::WriteRequest& request) noexcept override;
  int poll(std::span<comm::LinkEvent> events) noexcept override;
  void wait(Ps bound) noexcept override;
  [[nodiscard]] const comm::LinkFailure* failure() const noexcept override;
  [[nodiscard]] comm::PeerStats stats(std::uint32_t peer) const noexcept override { return peers_[peer].tally.read(); }
  [[nodiscard]] std::string describe(std::uint32_t peer) const override;

 private:
  static constexpr std::size_t kHeaderBytes = 16;
  static constexpr std::size_t kMaxPieces = 2;
  using Header = std::array<std::byte, kHeaderBytes>;

  struct Outgoing {
    Header header;
    std::array<comm::Piece, kMaxPieces> pieces;
    std::uint64_t done = 0;  ///< bytes of header and pieces that the kernel has
    std::uint64_t total = 0;
    std::uint64_t token = 0;
  };
  struct Incoming {
    Header header;
    std::size_t header_done = 0;
    std::uint64_t offset = 0;  ///< where the next byte goes
    std::uint64_t left = 0;
    std::uint32_t immediate = 0;
  };
  /// Per peer: a ring of messages that the kernel has not taken yet, and the message being read.
  struct Peer {
    int fd = -1;
    std::vector<Outgoing> queue;
    std::size_t head = 0;
    std::size_t queued = 0;
    Incoming incoming;
    comm::PeerTally tally;
  };
  /// Where events of one poll go.
  struct EventBuffer {
    std::span<comm::LinkEvent> events;
    std::size_t count = 0;
    [[nodiscard]] bool full() const noexcept { return count == events.size(); }
  };

  bool send_some(std::uint32_t peer) noexcept;
  bool flush(std::uint32_t peer) noexcept;
  bool receive_some(std::uint32_t peer, EventBuffer& out, bool& moved) noexcept;
  bool take_header(std::uint32_t peer) noexcept;
  void finish_message(std::uint32_t peer, EventBuffer& out) noexcept;
  bool fail(std::uint32_t peer, const std::string& why) noexcept;

  TcpMesh mesh_;
  std::uint32_t rank_;
  std::span<std::byte> scratch_;
  std::vector<Peer> peers_;
  std::vector<std::uint64_t> sent_tokens_;  ///< completed in post_write or a poll, not told yet
  std::optional<comm::LinkFailure> failure_;
};

}  // namespace tensorwire::cli
