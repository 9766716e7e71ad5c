// Collectives between GPUs of one host, over memory that they map of each other. A Communicator is one rank's end: it
// owns its scratch memory and the mappings of the others'. Ranks are processes, or threads of one process, which may
// share a GPU. How they first find each other is the caller's: an exchange of small byte strings is all that is asked
// for.
//
// A call launches one kernel on the caller's stream and returns. It may be captured into a graph; nothing of its order
// is fixed then, for what counts from call to call is in device memory. All ranks launch the same operations in the
// same order. One thread at a time uses a communicator, but for abort() and failure().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "collective/types.hpp"
#include "cuda/failure.hpp"
#include "cuda/gpu_clock.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/job.hpp"
#include "cuda/shape.hpp"

namespace tensorwire::cuda {

using Bytes = std::vector<std::byte>;
/// Every rank gives bytes and gets those of all ranks, by rank. Ends within a bound of its own, by an Error.
using Exchange = std::function<std::vector<Bytes>(std::span<const std::byte> mine)>;

struct CommunicatorOptions {
  int rank = 0;
  int ranks = 1;
  int device = 0;  ///< this rank's GPU, as this process numbers them
  Exchange exchange;
  Ps operation_bound = 60 * kSecond;  ///< of each wait for a peer on the GPU
  Ps setup_bound = 60 * kSecond;      ///< of the wait for the memory of other processes
  std::uint64_t host = 0;             ///< what tells this rank's host from others (identity.hpp); 0: it is asked

  bool early_launch = true;  ///< programmatic dependent launch
  bool journal = true;       ///< kernels write down what they do; some 0.1 us each

  // What follows shapes the scratch memory and must be the same on all ranks.
  Home scratch = Home::kGpu;             ///< kHost: for GPUs that do not reach each other's memory
  std::uint32_t most_lanes = 128;        ///< fewer where GPUs have fewer multiprocessors, or ranks share one
  std::uint32_t line_data_bytes = 8192;  ///< of a tensor by lines, for each lane
  std::uint32_t round_bytes = 32768;     ///< of a tensor by words, for each lane and round
  std::uint32_t slot_bytes = 0;          ///< 0: 64 KiB between two GPUs, else 32 KiB
  std::uint32_t flag_bits = 32;          ///< of lines' flags; tests use 8, to see them wrap around
};

enum class [[nodiscard]] Status : std::uint8_t{
    kOk,
    kInvalid,      ///< an argument makes no sense; nothing was launched
    kFailed,       ///< the communicator is over: failure() says why
    kNotLaunched,  ///< CUDA refused the launch; cudaGetLastError() says why
};

/// One message between two ranks.
struct Message {
  bool sends = false;  ///< this rank sends, else it receives
  int peer = 0;        ///< this rank itself is fine where it both sends and receives
  void* buffer = nullptr;
  std::size_t bytes = 0;  ///< even
};

/// A decode step's all-reduce and what follows it; device memory on 16 bytes, rows * hidden elements each.
struct AddNorm {
  const void* in = nullptr;
  const void* residual_in = nullptr;
  const void* weight = nullptr;  ///< hidden elements
  void* residual_out = nullptr;  ///< sum over all ranks of in, + residual_in; may equal either
  void* norm_out = nullptr;  ///< residual_out, of each row, / sqrt(mean of squares + epsilon), * weight; may equal in
  std::size_t rows = 0;
  std::size_t hidden = 0;  ///< whole units of 16 bytes
  float epsilon = 1e-6F;
  bool one_plus = false;  ///< * (1 + weight), as Gemma does

  void* quant_out = nullptr;           ///< norm_out / scale, saturated; on 8 bytes. Then norm_out may be null
  const float* quant_scale = nullptr;  ///< on the GPU; null: the largest magnitude of each row / that of the type
  float* row_scales = nullptr;         ///< which go here, one for each row
  QuantType quant_type = QuantType::kFloat8;
};

struct CommunicatorState;

class Communicator {
 public:
  /// All ranks come together; returns when all can reach each other's scratch.
  /// @throws Error, on all ranks: whichever rank cannot take part is named
  explicit Communicator(const CommunicatorOptions& options);
  /// Waits for the GPU; peers' memory is let go. Graphs that were captured with it may not be launched any more.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int ranks() const noexcept;
  [[nodiscard]] const Layout& layout() const noexcept;

  /// out[i] = op over all ranks of in[i], with the bits of collective::reduce() in rank order. Device memory, aligned
  /// to its elements; `in` may equal `out`, else they may not overlap.
  Status all_reduce(const void* in, void* out, std::size_t count, collective::DType dtype, collective::Op op,
                    Stream stream) noexcept;
  /// The same in a given shape, the same on all ranks: for measurements and tests.
  Status all_reduce_as(const Shape& shape, const void* in, void* out, std::size_t count, collective::DType dtype,
                       collective::Op op, Stream stream) noexcept;

  // The collectives of tensorwire.h, as it says; buffers in place or apart, aligned to their elements.
  Status all_gather(const void* in, void* out, std::size_t count, collective::DType dtype, Stream stream) noexcept;
  Status reduce_scatter(const void* in, void* out, std::size_t count, collective::DType dtype, collective::Op op,
                        Stream stream) noexcept;
  Status broadcast(const void* in, void* out, std::size_t count, collective::DType dtype, int root,
                   Stream stream) noexcept;
  /// @param counts empty: `count` for each pair of ranks; else rank i sends counts[i * ranks + j] elements to rank j
  Status all_to_all(const void* in, void* out, std::size_t count, std::span<const std::uint64_t> counts,
                    collective::DType dtype, Stream stream) noexcept;
  /// Over when all ranks have come to it.
  Status barrier(Stream stream) noexcept;
  /// All of these messages at once; those between two ranks in the order given.
  Status exchange(std::span<const Message> messages, Stream stream) noexcept;

  /// In one kernel, rounded as the separate ones do (add_norm.cu); the same bits on all ranks. fp32, fp16, bf16.
  Status all_reduce_add_norm(const AddNorm& what, collective::DType dtype, Stream stream) noexcept;

  /// Ends the communicator, because `peer` (which may be this rank) is gone or gave up: waiting kernels here return
  /// within microseconds, and those of the other ranks once this rank's next kernel has told them, or at their own
  /// abort().
  void abort(int peer) noexcept;

  /// What the kernels of this rank wrote down: all that began, and of the last ones when, and whom they waited for.
  struct Journal {
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
    std::vector<JournalEntry> entries;  ///< from old to new
    std::optional<ClockReading> clock;  ///< of the GPU, which the entries' times are of
  };
  [[nodiscard]] Journal journal() const;
  /// Why the communicator is over. Reads host memory only.
  [[nodiscard]] std::optional<Failure> failure() const noexcept;
  /// The same as a line, with what the ranks were in; empty while all is well. Asks the GPU.
  [[nodiscard]] std::string failure_text() const;

 private:
  std::unique_ptr<CommunicatorState> state_;
};

}  // namespace tensorwire::cuda
