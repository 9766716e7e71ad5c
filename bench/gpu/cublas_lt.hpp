// Matrix products by cuBLASLt, which is loaded when the program runs: it is too large to travel with it. bf16 in and
// out, fp32 accumulation. A Product owns what cuBLASLt keeps of one shape; the CublasLt it came from outlives it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

namespace tensorwire::bench {

/// Column-major: C (m x n) = op(A) (m x k) * B (k x n), `batch` of them, one behind the other.
struct ProductShape {
  std::uint64_t m, n, k;
  bool transposed;  ///< A lies as k x m
  int batch = 1;
  bool same_a = false;  ///< one A for the whole batch
};

struct CublasLtFunctions;

class CublasLt {
 public:
  /// @param library empty: where the loader looks @throws Error
  explicit CublasLt(const std::string& library);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  [[nodiscard]] const CublasLtFunctions& call() const noexcept { return *functions_; }
  [[nodiscard]] cublasLtHandle_t handle() const noexcept { return handle_; }
  [[nodiscard]] void* workspace() const noexcept { return workspace_; }
  static constexpr std::size_t kWorkspaceBytes = 32U << 20;

 private:
  CublasLtFunctions* functions_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

class Product {
 public:
  /// Asks cuBLASLt for the algorithm that it thinks best. @throws Error
  Product(const CublasLt& library, const ProductShape& shape);
  ~Product();
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  /// @throws Error
  void run(const void* a, const void* b, void* c, cudaStream_t stream) const;

 private:
  const CublasLt& library_;
  cublasLtMatmulDesc_t what_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace tensorwire::bench
