// NCCL through dlopen: the few functions and numbers of its C interface that an all-reduce needs.
#include <dlfcn.h>

#include <cstring>

#include "base/error.hpp"
#include "way.hpp"

namespace tensorwire::bench {

namespace {

struct UniqueId {
  char bytes[128];
};
constexpr int kBfloat16 = 9;
constexpr int kSum = 0;
constexpr int kSymmetricWindow = 1;

struct Nccl {
  int (*get_version)(int*);
  const char* (*error_string)(int);
  int (*get_unique_id)(UniqueId*);
  int (*init_rank)(void**, int, UniqueId, int);
  int (*destroy)(void*);
  int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, cudaStream_t);
  int (*allocate)(void**, std::size_t);
  int (*free)(void*);
  int (*register_window)(void*, void*, std::size_t, void**, int);
};

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw Error(std::string("look up ") + name + " in NCCL", "it is not there");
}

Nccl load(const std::string& path) {
  void* library = ::dlopen(path.empty() ? "libnccl.so.2" : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error("load NCCL", ::dlerror(), "Name its file with --nccl");
  Nccl nccl{};
  look_up(library, "ncclGetVersion", nccl.get_version);
  look_up(library, "ncclGetErrorString", nccl.error_string);
  look_up(library, "ncclGetUniqueId", nccl.get_unique_id);
  look_up(library, "ncclCommInitRank", nccl.init_rank);
  look_up(library, "ncclCommDestroy", nccl.destroy);
  look_up(library, "ncclAllReduce", nccl.all_reduce);
  look_up(library, "ncclMemAlloc", nccl.allocate);
  look_up(library, "ncclMemFree", nccl.free);
  look_up(library, "ncclCommWindowRegister", nccl.register_window);
  return nccl;
}

class NcclWay : public Way {
 public:
  NcclWay(bool window, const Place& place, const std::string& library) : nccl_(load(library)), window_(window) {
    UniqueId id{};
    if (place.rank == 0) check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    const auto all = place.exchange(std::as_bytes(std::span(id.bytes)));
    std::memcpy(id.bytes, all[0].data(), sizeof id.bytes);
    check(nccl_.init_rank(&communicator_, place.ranks, id, place.rank), "ncclCommInitRank");
  }
  ~NcclWay() override {
    for (void* memory : memory_) nccl_.free(memory);
    nccl_.destroy(communicator_);
  }

  bool all_reduce(const void* in, void* out, std::size_t count, cudaStream_t stream) override {
    return nccl_.all_reduce(in, out, count, kBfloat16, kSum, communicator_, stream) == 0;
  }
  std::string describe() const override {
    int version = 0;
    nccl_.get_version(&version);
    return "NCCL " + std::to_string(version) + (window_ ? ", symmetric windows" : "");
  }
  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check(nccl_.allocate(&memory, bytes), "ncclMemAlloc");
    memory_.push_back(memory);
    if (window_) {
      void* window = nullptr;
      check(nccl_.register_window(communicator_, memory, bytes, &window, kSymmetricWindow), "ncclCommWindowRegister");
    }
    return memory;
  }

 private:
  void check(int result, const char* what) const {
    if (result != 0) throw Error(what, nccl_.error_string(result));
  }

  Nccl nccl_;
  bool window_;
  void* communicator_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace

std::unique_ptr<Way> make_nccl_way(bool window, const Place& place, const std::string& library) {
  return std::make_unique<NcclWay>(window, place, library);
}

}  // namespace tensorwire::bench
