// CUDA's driver, where the process has it: found by dlopen, so that nothing here is linked against CUDA or needs its
// headers, and never started by us. What is known of an address (whose memory, which allocation) and how a thread calls
// the driver without disturbing the program that owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tensorwire {

/// Functions of libcuda.so.1 as cuda.h declares them, under the names that its macros give them there. A result of 0 is
/// success. All are there; what an older driver may lack is said.
struct CudaDriver {
  using Address = unsigned long long;
  using Result = int;

  Result (*get_error_name)(Result, const char**) = nullptr;
  Result (*device_get)(int* device, int ordinal) = nullptr;
  Result (*device_attribute)(int* value, int attribute, int device) = nullptr;
  Result (*device_name)(char*, int length, int device) = nullptr;
  Result (*primary_retain)(void** context, int device) = nullptr;
  Result (*push_context)(void* context) = nullptr;
  Result (*pop_context)(void** context) = nullptr;
  Result (*exchange_capture_mode)(int* mode) = nullptr;
  Result (*pointer_attribute)(void* value, int attribute, Address) = nullptr;
  Result (*stream_priorities)(int* least, int* greatest) = nullptr;
  Result (*stream_create)(void** stream, unsigned flags, int priority) = nullptr;
  Result (*stream_destroy)(void* stream) = nullptr;
  Result (*stream_query)(void* stream) = nullptr;
  Result (*host_alloc)(void**, std::size_t, unsigned flags) = nullptr;
  Result (*host_free)(void*) = nullptr;
  Result (*host_device_address)(Address*, void*, unsigned flags) = nullptr;
  Result (*copy_to_host)(void*, Address, std::size_t, void* stream) = nullptr;
  Result (*copy_to_device)(Address, const void*, std::size_t, void* stream) = nullptr;
  Result (*memory_alloc)(Address*, std::size_t) = nullptr;
  Result (*memory_free)(Address) = nullptr;
  Result (*write_value)(void* stream, Address, std::uint32_t value, unsigned flags) = nullptr;  ///< null before 11.7
  Result (*export_range)(void* handle, Address, std::size_t, int type,
                         unsigned long long flags) = nullptr;      ///< null before 11.7
  Result (*flush_remote_writes)(int target, int scope) = nullptr;  ///< null before 11.3

  // For programs that use a GPU of their own accord; a library in somebody's process does not. Null where one is not
  // there, which no driver since CUDA 11 is without.
  Result (*init)(unsigned flags) = nullptr;
  Result (*device_count)(int* count) = nullptr;
  Result (*primary_release)(int device) = nullptr;
  Result (*fill16)(Address, unsigned short value, std::size_t count) = nullptr;
  Result (*stream_synchronize)(void* stream) = nullptr;

  [[nodiscard]] bool serves_programs() const noexcept {
    return init != nullptr && device_count != nullptr && primary_release != nullptr && fill16 != nullptr &&
           stream_synchronize != nullptr;
  }

  /// "CUDA_ERROR_INVALID_VALUE (1)".
  [[nodiscard]] std::string error_text(Result result) const;
};

inline constexpr int kCudaDeinitialized = 4;
inline constexpr int kCudaNotReady = 600;
inline constexpr int kCudaNotSupported = 801;

/// The driver that this process has loaded already; null where it has none, and then no address is of CUDA. Any thread;
/// some 30 ns once it is known either way.
[[nodiscard]] const CudaDriver* cuda_driver_in_process() noexcept;
/// Loads it where need be; null where this machine has none.
[[nodiscard]] const CudaDriver* load_cuda_driver() noexcept;

/// For as long as it lives, calls of this thread go to `context`, and neither end nor enter a capture that another
/// thread has begun. False: there is no context, or the process is ending and CUDA must not be called any more.
class CudaSection {
 public:
  CudaSection(const CudaDriver& driver, void* context) noexcept;
  ~CudaSection();
  CudaSection(const CudaSection&) = delete;
  CudaSection& operator=(const CudaSection&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return entered_; }

 private:
  const CudaDriver& driver_;
  int mode_ = 0;
  bool entered_ = false;
};

/// What CUDA says of an address that it knows.
struct CudaPointer {
  enum class Kind : std::uint8_t {
    kHost,     ///< page-locked or registered host memory
    kDevice,   ///< of one GPU: cudaMalloc or virtual memory management
    kManaged,  ///< wanders between host and GPU
  };
  Kind kind = Kind::kHost;
  int device = 0;                 ///< ordinal, as the process counts
  bool from_pool = false;         ///< stream-ordered (cudaMallocAsync)
  bool mapped = true;             ///< false: a reserved address without memory
  bool rdma_capable = false;      ///< as the driver says
  std::uint64_t buffer_id = 0;    ///< never the same for two allocations of the process; 0: not told
  std::uint64_t range_start = 0;  ///< of the allocation, or of the reservation that mappings lie in
  std::uint64_t range_bytes = 0;
  std::uint64_t mapping_end = 0;  ///< where this mapping ends; of drivers that do not tell, the end of the range
};
/// The ordinal of the GPU whose memory lies at `address`; nothing: the host's. Any thread; 30 ns without a driver.
[[nodiscard]] std::optional<int> cuda_device_of(const void* address) noexcept;
/// Nothing where the address is not CUDA's. Any thread, also one that captures a stream.
[[nodiscard]] std::optional<CudaPointer> cuda_pointer(std::uint64_t address) noexcept;
/// CudaPointer::buffer_id alone, for a look before each use; 0 when nothing is there.
[[nodiscard]] std::uint64_t cuda_buffer_id(const CudaDriver& driver, std::uint64_t address) noexcept;

}  // namespace tensorwire
