// libibverbs, loaded at run time: the system's own (NICs) or Tensorwire's drop-in (the user-space HCA). Nothing links
// against it, so one program runs on machines with and without rdma-core. A Library owns the handle and the typed
// function table; contexts share ownership of it, and it is never unloaded while one of them lives.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ibverbs/direct.h"

namespace tensorwire::verbs {

/// The exported calls that this room uses. Calls that verbs.h makes inline through the context need no entry.
struct Functions {
  decltype(&::_ibv_query_gid_ex) query_gid_ex = nullptr;   ///< null before rdma-core 32
  decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr = nullptr;  ///< null before rdma-core 34
  ibv_device** (*get_device_list)(int*) = nullptr;
  void (*free_device_list)(ibv_device**) = nullptr;
  const char* (*get_device_name)(ibv_device*) = nullptr;
  ibv_context* (*open_device)(ibv_device*) = nullptr;
  int (*close_device)(ibv_context*) = nullptr;
  int (*query_device)(ibv_context*, ibv_device_attr*) = nullptr;
  int (*query_port)(ibv_context*, std::uint8_t, _compat_ibv_port_attr*) = nullptr;
  int (*query_gid)(ibv_context*, std::uint8_t, int, ibv_gid*) = nullptr;
  ibv_pd* (*alloc_pd)(ibv_context*) = nullptr;
  int (*dealloc_pd)(ibv_pd*) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, std::size_t, int) = nullptr;
  int (*dereg_mr)(ibv_mr*) = nullptr;
  ibv_comp_channel* (*create_comp_channel)(ibv_context*) = nullptr;
  int (*destroy_comp_channel)(ibv_comp_channel*) = nullptr;
  ibv_cq* (*create_cq)(ibv_context*, int, void*, ibv_comp_channel*, int) = nullptr;
  int (*destroy_cq)(ibv_cq*) = nullptr;
  int (*get_cq_event)(ibv_comp_channel*, ibv_cq**, void**) = nullptr;
  void (*ack_cq_events)(ibv_cq*, unsigned int) = nullptr;
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*) = nullptr;
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int) = nullptr;
  int (*query_qp)(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*) = nullptr;
  int (*destroy_qp)(ibv_qp*) = nullptr;
  int (*get_async_event)(ibv_context*, ibv_async_event*) = nullptr;
  void (*ack_async_event)(ibv_async_event*) = nullptr;
};

/// Tensorwire's direct verbs; all null on other providers.
struct DirectFunctions {
  decltype(&::twdv_set_link) set_link = nullptr;
  decltype(&::twdv_link_description) link_description = nullptr;
  decltype(&::twdv_counter) counter = nullptr;
};

class Library {
 public:
  /// The libibverbs.so.1 that the loader finds; null when there is none.
  /// @throws Error when one is there but cannot be used (a symbol is missing).
  [[nodiscard]] static std::shared_ptr<const Library> open_system();

  /// The drop-in: TENSORWIRE_SOFT_LIBRARY, else beside this program or library (lib/tensorwire/ or ../lib/tensorwire/).
  /// @throws Error naming every place that was tried.
  [[nodiscard]] static std::shared_ptr<const Library> open_soft();

  Library(void* handle, std::string path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  [[nodiscard]] const Functions& call() const noexcept { return functions_; }
  [[nodiscard]] const DirectFunctions& direct() const noexcept { return direct_; }
  /// True for Tensorwire's HCA, whichever way it was found (LD_LIBRARY_PATH included).
  [[nodiscard]] bool is_soft() const noexcept { return direct_.set_link != nullptr; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  void* handle_;
  std::string path_;
  Functions functions_;
  DirectFunctions direct_;
};

}  // namespace tensorwire::verbs
