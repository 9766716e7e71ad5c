#include <cstdio>

#include "base/error.hpp"
#include "way.hpp"

namespace tensorwire::bench {

namespace {

class TensorwireWay : public Way {
 public:
  TensorwireWay(std::shared_ptr<cuda::Communicator> communicator, std::optional<cuda::Shape> shape)
      : communicator_(std::move(communicator)), shape_(shape) {}
  ~TensorwireWay() override {
    for (void* memory : memory_) cudaFree(memory);
  }

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
  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) throw Error("allocate GPU memory", "there is too little");
    memory_.push_back(memory);
    return memory;
  }

 private:
  std::shared_ptr<cuda::Communicator> communicator_;
  std::optional<cuda::Shape> shape_;
  cuda::Shape used_;
  std::vector<void*> memory_;
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
