// A rank's share of a Llama-shaped model in decode: weights, dense keys and values of a given context, and the kernels
// of one token, which may be captured. Weights are random, and a few layers' stand for all: more than the cache holds,
// so each is read from memory. The numbers that come out mean nothing; the time does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cublas_lt.hpp"

namespace tensorwire::bench {

struct ModelShape {
  std::string name;
  std::size_t layers, hidden, heads, kv_heads, inner, vocabulary;
};
/// "8b" or "70b". @throws Error
[[nodiscard]] ModelShape model_shape(const std::string& name);

struct DecodeShape {
  ModelShape model;
  std::size_t shards;  ///< the tensor-parallel size whose shapes are computed
  std::size_t batch;
  std::size_t context;
};

class DecodeModel {
 public:
  /// What follows each row-parallel product: partial sums go in, residual and norm are updated.
  using AfterProduct =
      std::function<void(const void* in, void* residual, const void* weight, void* norm, cudaStream_t stream)>;

  DecodeModel(const DecodeShape& shape, const CublasLt& library, cudaStream_t stream);
  ~DecodeModel();
  DecodeModel(const DecodeModel&) = delete;
  DecodeModel& operator=(const DecodeModel&) = delete;

  void token(const AfterProduct& after, cudaStream_t stream) const;
  [[nodiscard]] std::size_t elements() const noexcept { return shape_.batch * shape_.model.hidden; }
  /// What goes into AfterProduct, for ways that want memory of their own.
  void use_partial(void* memory) noexcept { partial_ = memory; }

 private:
  static constexpr std::size_t kDistinctLayers = 4;
  struct Layer {
    void *qkv, *out, *gate_up, *down, *keys, *values;
  };
  void* allocate(std::size_t elements, cudaStream_t stream);

  DecodeShape shape_;
  std::size_t heads_, kv_heads_, inner_, qkv_rows_;
  std::vector<void*> memory_;
  std::vector<Layer> layers_;
  void *residual_, *norm_, *weight_, *qkv_, *scores_, *attended_, *gates_, *activated_, *partial_, *logits_,
      *vocabulary_;
  std::unique_ptr<Product> to_qkv_, to_scores_, to_attended_, to_out_, to_gates_, to_down_, to_logits_;
};

}  // namespace tensorwire::bench
