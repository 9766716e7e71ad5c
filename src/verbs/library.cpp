#include "verbs/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/env.hpp"
#include "base/error.hpp"

namespace tensorwire::verbs {

namespace {

constexpr const char* kSystemName = "libibverbs.so.1";
constexpr const char* kSoftPath = "lib/tensorwire/libibverbs.so.1";
/// A program in the build tree lies a few folders deep; an installed one lies in bin/.
constexpr int kParentsSearched = 4;

/// The version is asked for, because two versions of some calls exist with different structs; a library without version
/// nodes still resolves by name.
void* find_symbol(void* handle, const char* name, const char* version) {
  void* symbol = dlvsym(handle, name, version);
  return symbol != nullptr ? symbol : dlsym(handle, name);
}

class Resolver {
 public:
  Resolver(void* handle, const std::string& path) : handle_(handle), path_(path) {}

  template <typename Function>
  void required(Function& function, const char* name, const char* version) const {
    optional(function, name, version);
    if (function == nullptr) {
      throw Error{"load " + path_, fmt::format("it has no symbol {}", name),
                  "Install the rdma-core package of this system, or use --device soft"};
    }
  }

  template <typename Function>
  void optional(Function& function, const char* name, const char* version) const {
    function = reinterpret_cast<Function>(find_symbol(handle_, name, version));
  }

 private:
  void* handle_;
  const std::string& path_;
};

void resolve(Functions& f, const Resolver& from) {
  from.required(f.get_device_list, "ibv_get_device_list", "IBVERBS_1.1");
  from.required(f.free_device_list, "ibv_free_device_list", "IBVERBS_1.1");
  from.required(f.get_device_name, "ibv_get_device_name", "IBVERBS_1.1");
  from.required(f.open_device, "ibv_open_device", "IBVERBS_1.1");
  from.required(f.close_device, "ibv_close_device", "IBVERBS_1.1");
  from.required(f.query_device, "ibv_query_device", "IBVERBS_1.1");
  from.required(f.query_port, "ibv_query_port", "IBVERBS_1.1");
  from.required(f.query_gid, "ibv_query_gid", "IBVERBS_1.1");
  from.required(f.alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1");
  from.required(f.dealloc_pd, "ibv_dealloc_pd", "IBVERBS_1.1");
  from.required(f.reg_mr, "ibv_reg_mr", "IBVERBS_1.1");
  from.required(f.dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1");
  from.required(f.create_comp_channel, "ibv_create_comp_channel", "IBVERBS_1.0");
  from.required(f.destroy_comp_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0");
  from.required(f.create_cq, "ibv_create_cq", "IBVERBS_1.1");
  from.required(f.destroy_cq, "ibv_destroy_cq", "IBVERBS_1.1");
  from.required(f.get_cq_event, "ibv_get_cq_event", "IBVERBS_1.1");
  from.required(f.ack_cq_events, "ibv_ack_cq_events", "IBVERBS_1.1");
  from.required(f.create_qp, "ibv_create_qp", "IBVERBS_1.1");
  from.required(f.modify_qp, "ibv_modify_qp", "IBVERBS_1.1");
  from.required(f.query_qp, "ibv_query_qp", "IBVERBS_1.1");
  from.required(f.destroy_qp, "ibv_destroy_qp", "IBVERBS_1.1");
  from.required(f.get_async_event, "ibv_get_async_event", "IBVERBS_1.1");
  from.required(f.ack_async_event, "ibv_ack_async_event", "IBVERBS_1.1");
  from.optional(f.query_gid_ex, "_ibv_query_gid_ex", "IBVERBS_1.11");
  from.optional(f.reg_dmabuf_mr, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
}

/// The folder of the shared object or program that this code is linked into.
std::filesystem::path own_folder() {
  Dl_info info{};
  std::error_code ignored;
  // A program's dli_fname is argv[0], which need not be a path; a shared object's is.
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0 && info.dli_fname != nullptr &&
      std::string_view{info.dli_fname}.find(".so") != std::string_view::npos) {
    return std::filesystem::canonical(info.dli_fname, ignored).parent_path();
  }
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

std::vector<std::filesystem::path> soft_candidates() {
  if (const auto named = env::get("TENSORWIRE_SOFT_LIBRARY")) return {*named};
  std::vector<std::filesystem::path> candidates;
  std::filesystem::path folder = own_folder();
  for (int i = 0; i <= kParentsSearched && !folder.empty(); ++i, folder = folder.parent_path()) {
    candidates.push_back(folder / kSoftPath);
    if (folder == folder.root_path()) break;
  }
  return candidates;
}

std::string loader_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown loader error";
}

}  // namespace

Library::Library(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {
  const Resolver from{handle_, path_};
  try {
    resolve(functions_, from);
  } catch (...) {
    dlclose(handle_);
    throw;
  }
  from.optional(direct_.set_link, "twdv_set_link", "IBVERBS_1.1");
  from.optional(direct_.link_description, "twdv_link_description", "IBVERBS_1.1");
  from.optional(direct_.counter, "twdv_counter", "IBVERBS_1.1");
}

Library::~Library() { dlclose(handle_); }

std::shared_ptr<const Library> Library::open_system() {
  // Once, and kept: the user-space HCA has the same soname, so that after it was loaded the loader would answer with
  // it.
  static const std::shared_ptr<const Library> system = []() -> std::shared_ptr<const Library> {
    void* handle = dlopen(kSystemName, RTLD_NOW | RTLD_LOCAL);
    return handle == nullptr ? nullptr : std::make_shared<const Library>(handle, kSystemName);
  }();
  return system;
}

std::shared_ptr<const Library> Library::open_soft() {
  std::string tried;
  for (const std::filesystem::path& candidate : soft_candidates()) {
    std::error_code ignored;
    tried += (tried.empty() ? "" : ", ") + candidate.string();
    if (!std::filesystem::exists(candidate, ignored)) continue;
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      throw Error{"load the user-space HCA from " + candidate.string(), loader_error(),
                  "Build or install Tensorwire's libibverbs.so.1 for this machine"};
    }
    auto library = std::make_shared<const Library>(handle, candidate.string());
    if (!library->is_soft()) {
      throw Error{"load the user-space HCA from " + candidate.string(), "it is another libibverbs, not Tensorwire's",
                  "Correct TENSORWIRE_SOFT_LIBRARY or unset it"};
    }
    return library;
  }
  throw Error{"load the user-space HCA", "libibverbs.so.1 is at none of: " + tried,
              "Build it, or name it with TENSORWIRE_SOFT_LIBRARY"};
}

}  // namespace tensorwire::verbs
