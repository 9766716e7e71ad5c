#include "cublas_lt.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "base/error.hpp"

namespace tensorwire::bench {

struct CublasLtFunctions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmulDescCreate) create_what;
  decltype(&cublasLtMatmulDescDestroy) destroy_what;
  decltype(&cublasLtMatmulDescSetAttribute) set_what;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmul) run;
};

namespace {

void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Error(what, "cuBLASLt says " + std::to_string(static_cast<int>(status)));
}

template <class Function>
void find_in(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw Error(std::string("look up ") + name, "this cuBLASLt has no such function");
}

cublasLtMatrixLayout_t layout_of(const CublasLtFunctions& call, std::uint64_t rows, std::uint64_t columns, int batch,
                                 bool same) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(call.create_layout(&layout, CUDA_R_16BF, rows, columns, static_cast<std::int64_t>(rows)),
               "describe a matrix");
  const std::int64_t stride = same ? 0 : static_cast<std::int64_t>(rows * columns);
  check_cublas(call.set_layout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch), "describe a batch");
  check_cublas(call.set_layout(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
               "describe a batch");
  return layout;
}

}  // namespace

CublasLt::CublasLt(const std::string& library) {
  void* const loaded = ::dlopen(library.empty() ? "libcublasLt.so.13" : library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) throw Error("load cuBLASLt", ::dlerror(), "Name its file with --cublas");
  functions_ = new CublasLtFunctions{};
  find_in(loaded, "cublasLtCreate", functions_->create);
  find_in(loaded, "cublasLtDestroy", functions_->destroy);
  find_in(loaded, "cublasLtMatmulDescCreate", functions_->create_what);
  find_in(loaded, "cublasLtMatmulDescDestroy", functions_->destroy_what);
  find_in(loaded, "cublasLtMatmulDescSetAttribute", functions_->set_what);
  find_in(loaded, "cublasLtMatrixLayoutCreate", functions_->create_layout);
  find_in(loaded, "cublasLtMatrixLayoutDestroy", functions_->destroy_layout);
  find_in(loaded, "cublasLtMatrixLayoutSetAttribute", functions_->set_layout);
  find_in(loaded, "cublasLtMatmulPreferenceCreate", functions_->create_preference);
  find_in(loaded, "cublasLtMatmulPreferenceDestroy", functions_->destroy_preference);
  find_in(loaded, "cublasLtMatmulPreferenceSetAttribute", functions_->set_preference);
  find_in(loaded, "cublasLtMatmulAlgoGetHeuristic", functions_->choose);
  find_in(loaded, "cublasLtMatmul", functions_->run);
  check_cublas(functions_->create(&handle_), "start cuBLASLt");
  if (cudaMalloc(&workspace_, kWorkspaceBytes) != cudaSuccess)
    throw Error("allocate GPU memory", "there is too little");
}

CublasLt::~CublasLt() {
  cudaFree(workspace_);
  if (handle_ != nullptr) functions_->destroy(handle_);
  delete functions_;
}

Product::Product(const CublasLt& library, const ProductShape& shape) : library_(library) {
  const CublasLtFunctions& call = library.call();
  check_cublas(call.create_what(&what_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a product");
  const cublasOperation_t transposed = shape.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  check_cublas(call.set_what(what_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed), "describe a product");
  a_ = shape.transposed ? layout_of(call, shape.k, shape.m, shape.batch, shape.same_a)
                        : layout_of(call, shape.m, shape.k, shape.batch, shape.same_a);
  b_ = layout_of(call, shape.k, shape.n, shape.batch, false);
  c_ = layout_of(call, shape.m, shape.n, shape.batch, false);
  cublasLtMatmulPreference_t preference = nullptr;
  check_cublas(call.create_preference(&preference), "choose an algorithm");
  const std::size_t workspace = CublasLt::kWorkspaceBytes;
  check_cublas(call.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace),
               "choose an algorithm");
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t chosen = call.choose(library.handle(), what_, a_, b_, c_, c_, preference, 1, &found, &count);
  call.destroy_preference(preference);
  check_cublas(chosen, "choose an algorithm");
  if (count == 0) throw Error("choose an algorithm", "cuBLASLt has none for this shape");
  algorithm_ = found.algo;
}

Product::~Product() {
  const CublasLtFunctions& call = library_.call();
  for (const auto layout : {a_, b_, c_}) call.destroy_layout(layout);
  call.destroy_what(what_);
}

void Product::run(const void* a, const void* b, void* c, cudaStream_t stream) const {
  const float one = 1, zero = 0;
  check_cublas(library_.call().run(library_.handle(), what_, &one, a, a_, b, b_, &zero, c, c_, c, c_, &algorithm_,
                                   library_.workspace(), CublasLt::kWorkspaceBytes, stream),
               "run a product");
}

}  // namespace tensorwire::bench
