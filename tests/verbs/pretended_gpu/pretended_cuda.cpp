// A CUDA driver for machines without a GPU: the functions that base/cuda_driver.hpp looks up, over memory that nobody
// can reach by its address (it is mapped without any right). Streams are threads that take their time. What a careful
// caller does (a context, the relaxed capture mode) is demanded.
#include "pretended_cuda.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace {

using Address = unsigned long long;
using namespace std::chrono_literals;

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotReady = 600, kNoContext = 201, kCaptureUnsafe = 900;
constexpr std::size_t kGpuBytes = 64 << 20, kPage = 2 << 20;

struct Block {
  std::size_t bytes;
  std::uint64_t id;
  int device;
  bool pool;
};

struct Gpu {
  std::byte* device = nullptr;
  std::byte* hidden = nullptr;
  std::size_t next = 0;
  std::map<Address, Block> blocks;
  std::map<void*, std::size_t> pinned;
  std::uint64_t last_id = 100;
  std::mutex mutex;

  Gpu() {
    const int fd = ::memfd_create("pretended GPU", MFD_CLOEXEC);
    if (::ftruncate(fd, kGpuBytes) != 0) std::abort();
    device = static_cast<std::byte*>(::mmap(nullptr, kGpuBytes, PROT_NONE, MAP_SHARED, fd, 0));
    hidden = static_cast<std::byte*>(::mmap(nullptr, kGpuBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
  }
  /// Freed memory at the lowest address is taken again, as real allocators do.
  Address allocate(std::size_t bytes, int of, bool pool) {
    const std::lock_guard guard{mutex};
    for (std::size_t at = 0; at + bytes <= kGpuBytes; at += kPage) {
      const auto address = reinterpret_cast<Address>(device) + at;
      const auto after = blocks.lower_bound(address);
      const bool free_behind = after == blocks.end() || after->first >= address + bytes;
      const bool free_before =
          after == blocks.begin() || std::prev(after)->first + std::prev(after)->second.bytes <= address;
      if (!free_behind || !free_before) continue;
      blocks[address] = {bytes, ++last_id, of, pool};
      return address;
    }
    return 0;
  }
  const std::pair<const Address, Block>* find(Address address) {
    const auto after = blocks.upper_bound(address);
    if (after == blocks.begin()) return nullptr;
    const auto& block = *std::prev(after);
    return address < block.first + block.second.bytes ? &block : nullptr;
  }
  std::byte* reach(Address address) { return hidden + (address - reinterpret_cast<Address>(device)); }
};

Gpu& gpu() {
  static auto* const instance = new Gpu;
  return *instance;
}

thread_local int t_mode = 0;  // global, as for every thread at first
thread_local int t_contexts = 0;
std::atomic<int> g_careless{0};
std::atomic<int> g_copies{0};
std::atomic<bool> g_exports{true};

int care() {
  if (t_contexts > 0 && t_mode == 2) return 0;
  ++g_careless;
  return t_contexts > 0 ? kCaptureUnsafe : kNoContext;
}

struct Stream {
  std::deque<std::function<void()>> work;
  std::mutex mutex;
  std::condition_variable changed;
  bool busy = false;
  std::thread thread{[this] { run(); }};

  void run() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock lock{mutex};
        busy = false;
        changed.notify_all();
        changed.wait(lock, [&] { return !work.empty(); });
        next = std::move(work.front());
        work.pop_front();
        busy = true;
      }
      std::this_thread::sleep_for(30us);
      next();
    }
  }
  void add(std::function<void()> what) {
    const std::lock_guard guard{mutex};
    work.push_back(std::move(what));
    changed.notify_all();
  }
  bool idle() {
    const std::lock_guard guard{mutex};
    return work.empty() && !busy;
  }
};

bool reachable(Address address, std::size_t bytes) {
  const std::lock_guard guard{gpu().mutex};
  const auto* const block = gpu().find(address);
  return block != nullptr && address + bytes <= block->first + block->second.bytes;
}

template <class Value>
int tell(void* to, Value value) {
  std::memcpy(to, &value, sizeof value);
  return 0;
}

int tell_of_pinned(void* value, int attribute) {
  switch (attribute) {
    case 2:
      return tell(value, 1U);
    case 8:
      return tell(value, 0U);
    case 9:
      return tell(value, 0);
    default:
      return kInvalidValue;
  }
}

int tell_of(void* value, int attribute, const std::pair<const Address, Block>& block) {
  switch (attribute) {
    case 2:
      return tell(value, 2U);
    case 7:
      return tell(value, block.second.id);
    case 8:
      return tell(value, 0U);
    case 9:
      return tell(value, block.second.device);
    case 11:
      return tell(value, block.first);
    case 12:
      return tell(value, block.second.bytes);
    case 13:
    case 15:
      return tell(value, 1U);
    case 17:
      return tell(value, block.second.pool ? reinterpret_cast<void*>(8) : nullptr);
    default:
      return kInvalidValue;
  }
}

}  // namespace

extern "C" {

int cuGetErrorName(int error, const char** name) {
  *name = error == kInvalidValue ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  return ordinal < tensorwire::test::kPretendedGpus ? tell(device, ordinal) : kInvalidValue;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 116:
      return tell(value, 1);
    case 124:
      return tell(value, g_exports.load() ? 1 : 0);
    case 118:
      return tell(value, 100);
    default:
      return kInvalidValue;
  }
}
int cuDeviceGetName(char* name, int length, int) {
  std::snprintf(name, static_cast<std::size_t>(length), "Pretended GPU");
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  return tell(context, reinterpret_cast<void*>(static_cast<std::uintptr_t>(device + 1)));
}
int cuFlushGPUDirectRDMAWrites(int target, int scope) { return target == 0 && scope == 100 ? care() : kInvalidValue; }
int cuCtxPushCurrent_v2(void* context) {
  if (context == nullptr) return kNoContext;
  ++t_contexts;
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  --t_contexts;
  return tell(context, static_cast<void*>(nullptr));
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, t_mode);
  return 0;
}
int cuPointerGetAttribute(void* value, int attribute, Address address) {
  const std::lock_guard guard{gpu().mutex};
  for (const auto& [start, bytes] : gpu().pinned) {
    const auto from = reinterpret_cast<Address>(start);
    if (address >= from && address < from + bytes) return tell_of_pinned(value, attribute);
  }
  const auto* const block = gpu().find(address);
  return block != nullptr ? tell_of(value, attribute, *block) : kInvalidValue;
}
int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  tell(least, 0);
  return tell(greatest, -5);
}
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  if (const int error = care(); error != 0) return error;
  return flags == 1 && priority == -5 ? tell(stream, static_cast<void*>(new Stream)) : kInvalidValue;
}
int cuStreamDestroy_v2(void* stream) {
  while (!static_cast<Stream*>(stream)->idle()) std::this_thread::sleep_for(10us);
  static_cast<Stream*>(stream)->thread.detach();  // it waits for ever, and is small
  return care();
}
int cuStreamQuery(void* stream) {
  if (const int error = care(); error != 0) return error;
  return static_cast<Stream*>(stream)->idle() ? 0 : kNotReady;
}
int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (const int error = care(); error != 0) return error;
  void* const made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const std::lock_guard guard{gpu().mutex};
  gpu().pinned[made] = bytes;
  return tell(memory, made);
}
int cuMemFreeHost(void* memory) {
  if (const int error = care(); error != 0) return error;
  const std::lock_guard guard{gpu().mutex};
  const auto found = gpu().pinned.find(memory);
  if (found == gpu().pinned.end()) return kInvalidValue;
  ::munmap(memory, found->second);
  gpu().pinned.erase(found);
  return 0;
}
int cuMemHostGetDevicePointer_v2(Address* address, void* memory, unsigned) {
  return tell(address, reinterpret_cast<Address>(memory));
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, void* stream) {
  if (const int error = care(); error != 0) return error;
  if (!reachable(from, bytes)) return kInvalidValue;
  std::memset(to, 0xee, bytes);
  static_cast<Stream*>(stream)->add([=] {
    std::memcpy(to, gpu().reach(from), bytes);
    ++g_copies;
  });
  return 0;
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, void* stream) {
  if (const int error = care(); error != 0) return error;
  if (!reachable(to, bytes)) return kInvalidValue;
  static_cast<Stream*>(stream)->add([=] {
    std::memcpy(gpu().reach(to), from, bytes);
    ++g_copies;
  });
  return 0;
}
int cuMemAlloc_v2(Address* address, std::size_t bytes) {
  if (const int error = care(); error != 0) return error;
  const Address made = gpu().allocate(bytes, 0, false);
  return made != 0 ? tell(address, made) : kOutOfMemory;
}
int cuMemFree_v2(Address address) {
  const std::lock_guard guard{gpu().mutex};
  return gpu().blocks.erase(address) == 1 ? 0 : kInvalidValue;
}
int cuStreamWriteValue32_v2(void* stream, Address address, std::uint32_t value, unsigned) {
  if (const int error = care(); error != 0) return error;
  static_cast<Stream*>(stream)->add(
      [=] { std::atomic_ref{*reinterpret_cast<std::uint32_t*>(address)}.store(value, std::memory_order_release); });
  return 0;
}
int cuMemGetHandleForAddressRange(void* handle, Address address, std::size_t bytes, int type, unsigned long long) {
  if (!g_exports.load()) return 801;
  if (type != 1 || address % 4096 != 0 || bytes % 4096 != 0 || !reachable(address, bytes)) return kInvalidValue;
  const int fd = ::memfd_create("pretended DMA-BUF", MFD_CLOEXEC);
  if (::ftruncate(fd, static_cast<::off_t>(bytes)) != 0) return kOutOfMemory;
  return tell(handle, fd);
}

// ---- for tests

unsigned long long pretended_allocate_from_pool(std::size_t bytes) { return gpu().allocate(bytes, 0, true); }
void pretended_write(Address address, const void* from, std::size_t bytes) {
  std::memcpy(gpu().reach(address), from, bytes);
}
void pretended_read(Address address, void* to, std::size_t bytes) { std::memcpy(to, gpu().reach(address), bytes); }
void pretended_export_dmabufs(int yes) { g_exports.store(yes != 0); }
int pretended_careless_calls() { return g_careless.load(); }
int pretended_copies() { return g_copies.load(); }
}
