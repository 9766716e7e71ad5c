#include "nccl/scratch.hpp"

#include <algorithm>
#include <exception>
#include <list>
#include <mutex>
#include <thread>

#include "base/cuda_driver.hpp"

namespace tensorwire::nccl {

namespace {

struct Block {
  Comm comm;
  std::optional<int> device;
  std::size_t bytes;
  void* address;
  std::thread::id taker;  ///< none: it is free
};

struct Blocks {
  std::mutex mutex;
  std::list<Block> all;
};
Blocks& blocks() {
  static auto* const instance = new Blocks;  // communicators may outlive static objects
  return *instance;
}

void* of_gpu(int device, std::size_t bytes) noexcept {
  const CudaDriver* const driver = cuda_driver_in_process();
  void* context = nullptr;
  if (driver == nullptr || driver->primary_retain(&context, device) != 0) return nullptr;
  const CudaSection section{*driver, context};
  CudaDriver::Address address = 0;
  if (!section || driver->memory_alloc(&address, bytes) != 0) return nullptr;
  return reinterpret_cast<void*>(address);
}

void* of_host(std::size_t bytes) noexcept {
  void* address = nullptr;
  return twMemAlloc(&address, bytes) == twSuccess ? address : nullptr;
}

void free_block(const Block& block) noexcept {
  if (!block.device) {
    static_cast<void>(twMemFree(block.address));
    return;
  }
  const CudaDriver* const driver = cuda_driver_in_process();
  void* context = nullptr;
  if (driver == nullptr || driver->primary_retain(&context, *block.device) != 0) return;
  const CudaSection section{*driver, context};
  if (section) static_cast<void>(driver->memory_free(reinterpret_cast<CudaDriver::Address>(block.address)));
}

}  // namespace

void* take_scratch(Comm comm, std::optional<int> device, std::size_t bytes) noexcept try {
  const std::scoped_lock lock{blocks().mutex};
  for (Block& block : blocks().all) {
    if (block.comm != comm || block.device != device || block.bytes < bytes || block.taker != std::thread::id{})
      continue;
    block.taker = std::this_thread::get_id();
    return block.address;
  }
  void* const address = device ? of_gpu(*device, bytes) : of_host(bytes);
  if (address != nullptr) blocks().all.push_back({comm, device, bytes, address, std::this_thread::get_id()});
  return address;
} catch (const std::exception&) {
  return nullptr;
}

void give_back_scratch() noexcept {
  const std::scoped_lock lock{blocks().mutex};
  for (Block& block : blocks().all) {
    if (block.taker == std::this_thread::get_id()) block.taker = {};
  }
}

void free_scratch_of(Comm comm) noexcept {
  const std::scoped_lock lock{blocks().mutex};
  std::erase_if(blocks().all, [&](const Block& block) {
    if (block.comm != comm) return false;
    free_block(block);
    return true;
  });
}

}  // namespace tensorwire::nccl
