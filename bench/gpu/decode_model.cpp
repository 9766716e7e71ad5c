#include "decode_model.hpp"

#include <cmath>

#include "base/error.hpp"
#include "decode_kernels.hpp"

namespace tensorwire::bench {

namespace {

constexpr std::size_t kHeadDim = 128;

}  // namespace

ModelShape model_shape(const std::string& name) {
  if (name == "8b") return {"Llama 8B", 32, 4096, 32, 8, 14336, 128256};
  if (name == "70b") return {"Llama 70B", 80, 8192, 64, 8, 28672, 128256};
  throw Error("find the model " + name, "there is none of that name", "Give 8b or 70b");
}

DecodeModel::DecodeModel(const DecodeShape& shape, const CublasLt& library, cudaStream_t stream)
    : shape_(shape),
      heads_(shape.model.heads / shape.shards),
      kv_heads_(shape.model.kv_heads / shape.shards),
      inner_(shape.model.inner / shape.shards),
      qkv_rows_((heads_ + 2 * kv_heads_) * kHeadDim) {
  const std::size_t hidden = shape.model.hidden, batch = shape.batch;
  const std::size_t kv = batch * kv_heads_ * shape.context * kHeadDim;
  for (std::size_t layer = 0; layer < kDistinctLayers; ++layer) {
    layers_.push_back({allocate(qkv_rows_ * hidden, stream), allocate(hidden * heads_ * kHeadDim, stream),
                       allocate(2 * inner_ * hidden, stream), allocate(hidden * inner_, stream), allocate(kv, stream),
                       allocate(kv, stream)});
  }
  residual_ = allocate(batch * hidden, stream);
  norm_ = allocate(batch * hidden, stream);
  weight_ = allocate(hidden, stream);
  qkv_ = allocate(batch * qkv_rows_, stream);
  scores_ = allocate(batch * heads_ * shape.context, stream);
  attended_ = allocate(batch * heads_ * kHeadDim, stream);
  gates_ = allocate(batch * 2 * inner_, stream);
  activated_ = allocate(batch * inner_, stream);
  partial_ = allocate(batch * hidden, stream);
  vocabulary_ = allocate(shape.model.vocabulary / shape.shards * hidden, stream);
  logits_ = allocate(shape.model.vocabulary / shape.shards * batch, stream);
  const auto product = [&](std::size_t rows, std::size_t inputs) {
    return std::make_unique<Product>(library, ProductShape{rows, batch, inputs, true});
  };
  to_qkv_ = product(qkv_rows_, hidden);
  to_out_ = product(hidden, heads_ * kHeadDim);
  to_gates_ = product(2 * inner_, hidden);
  to_down_ = product(hidden, inner_);
  to_logits_ = product(shape.model.vocabulary / shape.shards, hidden);
  // The heads of a group share keys and values.
  const std::size_t group = heads_ / kv_heads_;
  const auto groups = static_cast<int>(batch * kv_heads_);
  to_scores_ = std::make_unique<Product>(library, ProductShape{shape.context, group, kHeadDim, true, groups});
  to_attended_ = std::make_unique<Product>(library, ProductShape{kHeadDim, group, shape.context, false, groups});
}

DecodeModel::~DecodeModel() {
  for (void* memory : memory_) cudaFree(memory);
}

void* DecodeModel::allocate(std::size_t elements, cudaStream_t stream) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, elements * 2) != cudaSuccess) {
    throw Error("allocate " + std::to_string(elements * 2) + " bytes on the GPU", "there is too little");
  }
  memory_.push_back(memory);
  fill_random(memory, elements, memory_.size() * 1'000'003, stream);
  return memory;
}

void DecodeModel::token(const AfterProduct& after, cudaStream_t stream) const {
  for (std::size_t i = 0; i < shape_.model.layers; ++i) {
    const Layer& layer = layers_[i % layers_.size()];
    to_qkv_->run(layer.qkv, norm_, qkv_, stream);
    to_scores_->run(layer.keys, qkv_, scores_, stream);
    softmax(scores_, shape_.batch * heads_, shape_.context, 1.0F / std::sqrt(static_cast<float>(kHeadDim)), stream);
    to_attended_->run(layer.values, scores_, attended_, stream);
    to_out_->run(layer.out, attended_, partial_, stream);
    after(partial_, residual_, weight_, norm_, stream);
    to_gates_->run(layer.gate_up, norm_, gates_, stream);
    silu_and_multiply(gates_, activated_, shape_.batch, inner_, stream);
    to_down_->run(layer.down, activated_, partial_, stream);
    after(partial_, residual_, weight_, norm_, stream);
  }
  to_logits_->run(vocabulary_, norm_, logits_, stream);
}

}  // namespace tensorwire::bench
