// What a relay's kernels and its host share (relay.hpp): pinned host memory that both see. Plain values. The sequence
// is the GPU's: kernels number what they ask for, so eager calls and graphs count on from each other, and capture
// consumes nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensorwire::cuda {

/// Ways between the hosts that share out each tensor, as network cards of a GPU do.
inline constexpr std::uint32_t kMostRails = 4;
/// Requests in flight: a kernel asks for one round ahead of the one it waits for.
inline constexpr std::uint32_t kRelayWindows = 2;
/// Records of a rail's FIFO. Kernels of one communicator run one after the other, so two would do.
inline constexpr std::uint32_t kDoorbells = 16;

/// What is done with a window, as one word that a kernel stores: collective, dtype, op and OperationKind in a byte
/// each, then the root.
struct Request {
  std::uint8_t collective = 0;
  std::uint8_t dtype = 0;
  std::uint8_t op = 0;
  std::uint8_t operation = 0;  ///< for people; 0: the operation began in an earlier round
  std::uint32_t root = 0;

  [[nodiscard]] constexpr std::uint64_t packed() const noexcept {
    return std::uint64_t{collective} | std::uint64_t{dtype} << 8 | std::uint64_t{op} << 16 |
           std::uint64_t{operation} << 24 | std::uint64_t{root} << 32;
  }
  [[nodiscard]] static constexpr Request unpacked(std::uint64_t word) noexcept {
    return {static_cast<std::uint8_t>(word), static_cast<std::uint8_t>(word >> 8),
            static_cast<std::uint8_t>(word >> 16), static_cast<std::uint8_t>(word >> 24),
            static_cast<std::uint32_t>(word >> 32)};
  }
};
inline constexpr std::uint64_t kBeginsOperation = 0xff000000;

/// What a kernel rings with, once its window is filled: one collective over all ranks. A cache line, whose sequence is
/// written last.
struct alignas(64) Doorbell {
  std::uint64_t sequence;  ///< from 1; stored with release
  std::uint64_t count;     ///< elements, as collective::Shape counts them
  std::uint64_t bytes;     ///< of the whole operation
  std::uint64_t what;      ///< a packed Request
  std::uint64_t gate;      ///< which of the board's is opened when it is done, from 1; 0: none
};

/// The first two words are loaded together, by the one thread that polls.
struct alignas(64) Release {
  std::uint64_t done;    ///< the last round whose results are in its window
  std::uint64_t failed;  ///< a packed Failure: there will be no more. Written by the host
};

/// Where a stream waits for the results of a round: 0, or 1 once they are in their window, and for good after a
/// failure. A kernel closes it when it rings. There are as many as rounds in flight, and whoever closes one comes after
/// the wait at it on the stream: so graphs that hold them may be replayed.
struct alignas(64) Gate {
  std::uint32_t open = 1;
};

/// When the first block of a kernel was where, in a round; by the GPU's clock.
struct alignas(64) RelayTimes {
  std::uint64_t begun_ns;     ///< the kernel, or filling this round's window
  std::uint64_t rung_ns;      ///< whichever block was the last to fill
  std::uint64_t released_ns;  ///< the release word was seen
  std::uint64_t taken_ns;     ///< the results are out of the window, as far as this block goes
};

struct RelayBoard {
  Release release;
  alignas(64) std::uint64_t error;  ///< a packed Failure. Written by kernels, once
  Gate gates[kRelayWindows];
  Doorbell doorbells[kDoorbells];
  RelayTimes times[kDoorbells];
};

/// In device memory: where a rail stands, and how the blocks of a kernel meet.
struct RelayState {
  std::uint64_t rung;                   ///< rounds that were asked for by kernels that are over
  std::uint64_t taken;                  ///< of these, those whose results are out of their windows
  std::uint64_t go;                     ///< the round whose results all blocks may take
  std::uint64_t error;                  ///< sticky: later kernels return at once
  std::uint32_t filled[kRelayWindows];  ///< blocks that have filled their share, by round mod kRelayWindows
  std::uint32_t left;                   ///< blocks that are through
};

}  // namespace tensorwire::cuda
