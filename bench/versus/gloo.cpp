// gloo::allreduce over its TCP transport, called as PyTorch's process group calls it. Ranks are those of RANK and
// WORLD_SIZE, and meet in the folder VERSUS_STORE. VERSUS_GLOO_ALGORITHM: ring (what gloo takes by itself) or bcube.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>

#include "library.hpp"

namespace tensorwire::versus {

namespace {

const char* variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error{std::string{name} + " is not set; run.py starts this program"};
  return text;
}

class Gloo final : public Library {
 public:
  Gloo()
      : context_(std::make_shared<gloo::rendezvous::Context>(std::atoi(variable("RANK")),
                                                             std::atoi(variable("WORLD_SIZE")))) {
    const char* algorithm = std::getenv("VERSUS_GLOO_ALGORITHM");
    if (algorithm != nullptr && std::string{algorithm} == "bcube") {
      algorithm_ = gloo::AllreduceOptions::Algorithm::BCUBE;
    }
    gloo::rendezvous::FileStore store{variable("VERSUS_STORE")};
    gloo::transport::tcp::attr address{"127.0.0.1"};
    auto device = gloo::transport::tcp::CreateDevice(address);
    context_->connectFullMesh(store, device);
  }

  [[nodiscard]] std::uint32_t rank() const override { return static_cast<std::uint32_t>(context_->rank); }
  [[nodiscard]] std::uint32_t ranks() const override { return static_cast<std::uint32_t>(context_->size); }
  [[nodiscard]] std::string description() const override {
    return algorithm_ == gloo::AllreduceOptions::Algorithm::BCUBE ? "gloo, bcube, tcp" : "gloo, ring, tcp";
  }
  void all_reduce(const float* in, float* out, std::size_t count) override {
    gloo::AllreduceOptions options{context_};
    options.setAlgorithm(algorithm_);
    options.setInput(const_cast<float*>(in), count);  // only read
    options.setOutput(out, count);
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
  gloo::AllreduceOptions::Algorithm algorithm_ = gloo::AllreduceOptions::Algorithm::RING;
};

}  // namespace

}  // namespace tensorwire::versus

int main() try {
  tensorwire::versus::Gloo library;
  return tensorwire::versus::run_rank(library);
} catch (const std::exception& error) {
  std::fprintf(stderr, "gloo: %s\n", error.what());
  return 1;
}
