#include <cstdio>

#include "base/error.hpp"
#include "gpu_blocks.hpp"
#include "way.hpp"

namespace tensorwire::bench {

namespace {

class TensorwireWay : public Way {
 public:
  TensorwireWay(std::shared_ptr<cuda::Communicator> communicator, std::optional<cuda::Shape> shape)
      : communicator_(std::move(communicator)), shape_(shape) {}

  bool all_reduce(const void* in, void* out, std::size_t count, cudaStream_t stream) override {
    used_ = shape_ ? *shape_ : cuda::choose_shape(count * 2, collective::DType::kBfloat16, communicator_->layout());
    return communicator_->all_reduce_as(used_, in, out, count, collective::DType::kBfloat16, collective::Op::kSum,
                                        stream) == cuda::Status::kOk;
  }
  std::string describe() const override {
    const std::string failed = communicator_->failure_text();
    if (!failed.empty()) return failed;
    return std::string(cuda::name_of(used_.protocol)) + ", " + std::to_string(used_.lanes) + " lanes of " +
           std::to_string(used_.threads) + " threads, pieces of " + std::to_string(used_.piece_bytes) + " bytes";
  }
  void* allocate(std::size_t bytes) override { return memory_.take(bytes); }

 private:
  std::shared_ptr<cuda::Communicator> communicator_;
  std::optional<cuda::Shape> shape_;
  cuda::Shape used_;
  GpuBlocks memory_;
};

/// The fused operation on rows of 8192, with a residual of zeros, so that its residual_out is the sum.
class AddNormWay : public Way {
 public:
  explicit AddNormWay(std::shared_ptr<cuda::Communicator> communicator) : communicator_(std::move(communicator)) {}

  bool all_reduce(const void* in, void* out, std::size_t count, cudaStream_t stream) override {
    cuda::AddNorm what;
    what.in = in;
    what.residual_in = what.weight = zeros_;
    what.residual_out = out;
    what.norm_out = norm_;
    what.hidden = 8192;
    what.rows = count / what.hidden;
    return count % what.hidden == 0 &&
           communicator_->all_reduce_add_norm(what, collective::DType::kBfloat16, stream) == cuda::Status::kOk;
  }
  std::string describe() const override { return "all-reduce + residual + RMSNorm, rows of 8192"; }
  void* allocate(std::size_t bytes) override {
    if (zeros_ == nullptr) {
      zeros_ = memory_.take(bytes);
      norm_ = memory_.take(bytes);
      if (cudaMemset(zeros_, 0, bytes) != cudaSuccess) throw Error("clear GPU memory", "it failed");
    }
    return memory_.take(bytes);
  }

 private:
  std::shared_ptr<cuda::Communicator> communicator_;
  void* zeros_ = nullptr;
  void* norm_ = nullptr;
  GpuBlocks memory_;
};

}  // namespace

std::shared_ptr<cuda::Communicator> make_communicator(const Place& place, const cuda::CommunicatorOptions& wishes) {
  cuda::CommunicatorOptions options = wishes;
  options.rank = place.rank;
  options.ranks = place.ranks;
  options.device = place.device;
  options.exchange = place.exchange;
  options.operation_bound = 5 * kSecond;
  return std::make_shared<cuda::Communicator>(options);
}

std::unique_ptr<Way> make_tensorwire_way(const std::string& name, const Place&,
                                         std::shared_ptr<cuda::Communicator> communicator) {
  if (name == "add-norm") return std::make_unique<AddNormWay>(std::move(communicator));
  std::optional<cuda::Shape> shape;
  unsigned lanes = 0;
  unsigned third = 0;
  if (std::sscanf(name.c_str(), "lines:%u:%u", &lanes, &third) == 2) {
    shape = cuda::Shape{cuda::Protocol::kLines, lanes, third, 0};
  } else if (std::sscanf(name.c_str(), "words:%u:%u", &lanes, &third) == 2) {
    shape = cuda::Shape{cuda::Protocol::kWords, lanes, third, 0};
  } else if (std::sscanf(name.c_str(), "slots:%u:%u", &lanes, &third) == 2) {
    shape = cuda::Shape{cuda::Protocol::kSlots, lanes, communicator->ranks() == 2 ? 1024U : 512U, third};
  } else if (name != "tensorwire") {
    throw Error("measure " + name, "there is no such way",
                "Give tensorwire, lines:LANES:THREADS, words:LANES:THREADS, slots:LANES:PIECE, nccl");
  }
  return std::make_unique<TensorwireWay>(std::move(communicator), shape);
}

}  // namespace tensorwire::bench
