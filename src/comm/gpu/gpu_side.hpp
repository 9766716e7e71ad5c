// A communicator's operations on memory of GPUs: what the C API sees of the room cuda/, which is not in every build.
// Where the GPUs reach each other, and where a proxy thread carries for them, calls launch a kernel on the caller's
// stream and return; failures show later, by failure(). What neither can do goes through host memory that it owns, by
// copies. One thread at a time, but for abort() and failure(). The Group must outlive it.
#pragma once

#include <memory>
#include <optional>

#include "bootstrap/group.hpp"
#include "comm/communicator.hpp"
#include "comm/gpu/carried.hpp"
#include "cuda/communicator.hpp"

namespace tensorwire::comm {

class GpuSide {
 public:
  /// A collective call of all ranks, each with a GPU (they may share one).
  /// @throws Error on all ranks: a build without CUDA, no driver, no such GPU
  [[nodiscard]] static std::unique_ptr<GpuSide> create(bootstrap::Group& group, int device, const CommOptions& options);
  /// The GPU that is current in the calling thread. @throws Error
  [[nodiscard]] static int current_device();
  /// Whether the stream is being captured into a graph. False without CUDA.
  [[nodiscard]] static bool is_capturing(void* stream) noexcept;

  virtual ~GpuSide() = default;
  GpuSide(const GpuSide&) = delete;
  GpuSide& operator=(const GpuSide&) = delete;

  [[nodiscard]] virtual int device() const noexcept = 0;
  /// "peer", "hierarchical", "proxy" or "host".
  [[nodiscard]] virtual const char* path() const noexcept = 0;
  // Whether launch() is possible: alike on all ranks.
  [[nodiscard]] virtual bool launches(const Call& call) const noexcept = 0;
  [[nodiscard]] virtual bool launches_messages() const noexcept = 0;
  [[nodiscard]] virtual bool launches(const cuda::AddNorm& what) const noexcept = 0;

  /// Of arguments that communicator.hpp finds nothing wrong with.
  virtual cuda::Status launch(const Call& call, void* stream) noexcept = 0;
  virtual cuda::Status launch(std::span<const Transfer> transfers, void* stream) noexcept = 0;
  virtual cuda::Status launch(const cuda::AddNorm& what, collective::DType dtype, void* stream) noexcept = 0;
  /// What CUDA said of the launch that gave Status::kNotLaunched.
  [[nodiscard]] virtual std::string launch_error() const = 0;

  /// Two pieces of pinned host memory, of so many bytes each, until the next call. @throws Error
  struct HostMemory {
    std::byte* in;
    std::byte* out;
  };
  [[nodiscard]] virtual HostMemory host_memory(std::size_t in_bytes, std::size_t out_bytes) = 0;
  /// Waits for what is on the stream, then copies between the GPU and the host. @throws Error
  virtual void copy(void* to, const void* from, std::size_t bytes, void* stream) = 0;

  /// What ran on the GPU, replays of graphs among it. Asks the GPU.
  [[nodiscard]] virtual cuda::Communicator::Journal journal() const = 0;
  /// What of it went by proxies.
  [[nodiscard]] virtual Carried carried() const noexcept = 0;
  /// Ends what is under way, here and on the other ranks: `peer` is to blame, or this rank gives up.
  virtual void abort(int peer) noexcept = 0;
  /// Why the operations are over; nothing while all is well.
  [[nodiscard]] virtual std::optional<CommError> failure() const = 0;

 protected:
  GpuSide() = default;
};

}  // namespace tensorwire::comm
