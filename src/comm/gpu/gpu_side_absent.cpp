// GpuSide in a build without CUDA: there is none, and one line says so.
#include "base/error.hpp"
#include "comm/gpu/agreement.hpp"
#include "comm/gpu/gpu_side.hpp"

namespace tensorwire::comm {

namespace {

[[noreturn]] void say_absent() {
  throw Error{"use memory of a GPU", "this libtensorwire was built without CUDA",
              "Build it where nvcc is (CUDA_HOME), or pass host memory"};
}

}  // namespace

std::unique_ptr<GpuSide> GpuSide::create(bootstrap::Group& group, int /*device*/, const CommOptions& /*options*/) {
  static_cast<void>(agree_on_path(group, false));
  say_absent();
}
int GpuSide::current_device() { say_absent(); }
bool GpuSide::is_capturing(void* /*stream*/) noexcept { return false; }

}  // namespace tensorwire::comm
