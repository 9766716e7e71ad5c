// Memory of the C API: allocation, and windows, which are memory that every rank has registered ahead of its use.
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "base/mapped_memory.hpp"
#include "comm/c_api_calls.hpp"

using namespace tensorwire;

struct twWindow {
  void* address;
  size_t bytes;
};

namespace {

/// What twMemAlloc gave out.
struct Allocations {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<MappedMemory>> by_address;
};
Allocations& allocations() {
  static Allocations all;
  return all;
}

/// All ranks tell whether they could; an Error names those that could not.
void agree(bootstrap::Group& group, bool mine, const char* what) {
  const std::array<std::byte, 1> said{mine ? std::byte{1} : std::byte{0}};
  const auto all = group.all_gather(said);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != 1 || all[rank][0] != std::byte{1}) {
      throw Error{what, group.name(static_cast<int>(rank)) + " could not", "Look at its log"};
    }
  }
}

}  // namespace

twResult_t twMemAlloc(void** address, size_t bytes) {
  if (address == nullptr || bytes == 0)
    return refuse(twInvalidArgument, "twMemAlloc: the pointer is null, or no bytes");
  *address = nullptr;
  try {
    auto memory = std::make_unique<MappedMemory>(bytes, "memory for tensors");
    void* const at = memory->bytes().data();
    const std::scoped_lock lock{allocations().mutex};
    allocations().by_address.emplace(at, std::move(memory));
    *address = at;
    return twSuccess;
  } catch (const std::exception& error) {
    return refuse(twSystemError, error.what());
  }
}

twResult_t twMemFree(void* address) {
  if (address == nullptr) return twSuccess;
  const std::scoped_lock lock{allocations().mutex};
  if (allocations().by_address.erase(address) == 1) return twSuccess;
  return refuse(twInvalidArgument, "twMemFree: twMemAlloc did not give this address");
}

twResult_t twCommWindowRegister(twComm_t comm, void* address, size_t bytes, twWindow_t* window, int flags) {
  return operate("twCommWindowRegister", comm, [&](comm::Communicator& communicator) {
    if (address == nullptr || bytes == 0 || window == nullptr || flags != TW_WINDOW_DEFAULT) {
      return comm->refuse(twInvalidArgument, "twCommWindowRegister: a pointer is null, no bytes, or an unknown flag");
    }
    *window = nullptr;
    const bool could = communicator.register_output(address, bytes);
    const std::string why = could ? "" : communicator.error()->line;
    try {
      agree(comm->group(), could, "register a window");
      *window = new twWindow{address, bytes};
      return twSuccess;
    } catch (const std::exception& error) {
      communicator.deregister_buffer(address, bytes);
      return comm->refuse(twSystemError, could ? error.what() : why);
    }
  });
}

twResult_t twCommWindowDeregister(twComm_t comm, twWindow_t window) {
  if (window == nullptr) return twSuccess;
  const std::unique_ptr<twWindow> owned{window};
  return operate("twCommWindowDeregister", comm, [&](comm::Communicator& communicator) {
    communicator.deregister_buffer(owned->address, owned->bytes);
    return twSuccess;
  });
}

twResult_t twCommForget(twComm_t comm, const void* address, size_t bytes) {
  return operate("twCommForget", comm, [&](comm::Communicator& communicator) {
    communicator.deregister_buffer(address, bytes);
    return twSuccess;
  });
}
