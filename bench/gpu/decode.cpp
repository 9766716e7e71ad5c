// `tensorwire bench decode --gpu`: tokens of a Llama-shaped model (decode_model.hpp), a CUDA graph each, with our
// all-reduce fused with what follows it and not, with NCCL's, and with communication left out; the ways take turns in
// one run, and the slowest rank counts. Ranks are threads, one for each GPU.
//
// usage: gpu_decode [--models 8b,70b] [--batch 1,16,64] [--shards 2,8] [--context 1024] [--tokens 8] [--turns 6]
//                   [--ways fused,unfused,nccl,none] [--nccl FILE] [--cublas FILE] [--json FILE] [--ranks N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "decode_kernels.hpp"
#include "decode_model.hpp"
#include "lists.hpp"
#include "start_line.hpp"
#include "way.hpp"

namespace tensorwire::bench {
namespace {

struct Arguments {
  std::vector<std::string> models{"8b", "70b"};
  std::vector<std::string> ways{"fused", "unfused", "nccl", "none"};
  std::vector<std::size_t> batches{1, 16, 64};
  std::vector<std::size_t> shards{2, 8};
  std::size_t context = 1024;
  int tokens = 8;
  int turns = 6;
  int ranks = 0;
  std::string nccl, cublas, json;
};

Arguments arguments_of(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--models") {
      arguments.models = split_list(value);
    } else if (name == "--ways") {
      arguments.ways = split_list(value);
    } else if (name == "--batch") {
      arguments.batches = split_numbers(value);
    } else if (name == "--shards") {
      arguments.shards = split_numbers(value);
    } else if (name == "--context") {
      arguments.context = std::stoul(value);
    } else if (name == "--tokens") {
      arguments.tokens = std::stoi(value);
    } else if (name == "--turns") {
      arguments.turns = std::stoi(value);
    } else if (name == "--ranks") {
      arguments.ranks = std::stoi(value);
    } else if (name == "--nccl") {
      arguments.nccl = value;
    } else if (name == "--cublas") {
      arguments.cublas = value;
    } else if (name == "--json") {
      arguments.json = value;
    } else {
      throw Error("read the arguments", name + " is unknown");
    }
  }
  return arguments;
}

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw Error(what, cudaGetErrorString(error));
}

struct Result {
  std::string model, way;
  std::size_t shards, batch;
  float p50_ms, p99_ms, ratio;
};

/// What the rank threads share.
class DecodeRun {
 public:
  DecodeRun(Arguments arguments, int devices)
      : arguments_(std::move(arguments)),
        devices_(devices),
        line_(arguments_.ranks),
        given_(static_cast<std::size_t>(arguments_.ranks)),
        samples_(given_.size()) {}

  int go() {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < arguments_.ranks; ++rank) {
      threads.emplace_back([this, rank] {
        try {
          be(rank);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
          std::_Exit(1);  // the others wait for this one: there is no way on
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (!arguments_.json.empty()) write_json();
    return 0;
  }

 private:
  struct Graph {
    cudaGraphExec_t executable = nullptr;
    std::vector<float> times;  ///< milliseconds of a token on this rank
  };

  std::vector<cuda::Bytes> exchange(int rank, std::span<const std::byte> mine) {
    given_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
    line_.arrive_and_wait();
    std::vector<cuda::Bytes> all = given_;
    line_.arrive_and_wait();
    return all;
  }

  void be(int rank) {
    Place place{rank, arguments_.ranks, rank % devices_, {}};
    place.exchange = [this, rank](std::span<const std::byte> mine) { return exchange(rank, mine); };
    check_cuda(cudaSetDevice(place.device), "use a GPU");
    load_decode_kernels();
    const auto communicator = make_communicator(place, {});
    const bool with_nccl = std::ranges::find(arguments_.ways, "nccl") != arguments_.ways.end();
    const auto nccl = with_nccl ? make_nccl_way(false, place, arguments_.nccl) : nullptr;
    const CublasLt library(arguments_.cublas);
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
    for (const std::string& model : arguments_.models) {
      for (const std::size_t shards : arguments_.shards) {
        for (const std::size_t batch : arguments_.batches) {
          measure({model_shape(model), shards, batch, arguments_.context}, place, *communicator, nccl.get(), library,
                  stream);
        }
      }
    }
    check_cuda(cudaStreamDestroy(stream), "destroy a stream");
  }

  void measure(const DecodeShape& shape, const Place& place, cuda::Communicator& communicator, Way* nccl,
               const CublasLt& library, cudaStream_t stream) {
    DecodeModel model(shape, library, stream);
    void* sum = nullptr;
    check_cuda(cudaMalloc(&sum, model.elements() * 2), "allocate GPU memory");
    check_cuda(cudaStreamSynchronize(stream), "make a model");
    line_.arrive_and_wait();
    // cuBLASLt loads kernels at their first call, which may wait for an idle GPU: before any rank waits for another.
    model.token(what_follows("none", shape, communicator, nccl, sum), stream);
    check_cuda(cudaStreamSynchronize(stream), "run a token");
    line_.arrive_and_wait();
    std::vector<Graph> graphs(arguments_.ways.size());
    for (std::size_t i = 0; i < graphs.size(); ++i) {
      const auto after = what_follows(arguments_.ways[i], shape, communicator, nccl, sum);
      // Once eagerly: NCCL connects at its first call.
      model.token(after, stream);
      check_cuda(cudaStreamSynchronize(stream), "run a token");
      line_.arrive_and_wait();
      cudaGraph_t graph = nullptr;
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin a capture");
      for (int token = 0; token < arguments_.tokens; ++token) model.token(after, stream);
      check_cuda(cudaStreamEndCapture(stream, &graph), "end a capture");
      check_cuda(cudaGraphInstantiate(&graphs[i].executable, graph, 0), "make a graph");
      check_cuda(cudaGraphDestroy(graph), "destroy a graph");
      line_.arrive_and_wait();
    }
    for (int turn = 0; turn < arguments_.turns; ++turn) {
      for (std::size_t i = 0; i < graphs.size(); ++i) {
        const std::size_t chosen = turn % 2 == 0 ? i : graphs.size() - 1 - i;
        take_turn(graphs[chosen], arguments_.ways[chosen], shape, communicator, turn == 0, stream);
      }
    }
    report(shape, place, graphs);
    for (const Graph& graph : graphs) cudaGraphExecDestroy(graph.executable);
    cudaFree(sum);
    line_.arrive_and_wait();
  }

  static DecodeModel::AfterProduct what_follows(const std::string& way, const DecodeShape& shape,
                                                cuda::Communicator& communicator, Way* nccl, void* sum) {
    const std::size_t rows = shape.batch, hidden = shape.model.hidden;
    if (way == "fused") {
      return [&communicator, rows, hidden](const void* in, void* residual, const void* weight, void* norm,
                                           cudaStream_t stream) {
        cuda::AddNorm what;
        what.in = in;
        what.residual_in = what.residual_out = residual;
        what.weight = weight;
        what.norm_out = norm;
        what.rows = rows;
        what.hidden = hidden;
        if (communicator.all_reduce_add_norm(what, collective::DType::kBfloat16, stream) != cuda::Status::kOk) {
          throw Error("launch all-reduce + residual + RMSNorm", communicator.failure_text());
        }
      };
    }
    std::function<void(const void*, cudaStream_t)> reduce;
    if (way == "unfused") {
      reduce = [&communicator, rows, hidden, sum](const void* in, cudaStream_t stream) {
        if (communicator.all_reduce(in, sum, rows * hidden, collective::DType::kBfloat16, collective::Op::kSum,
                                    stream) != cuda::Status::kOk) {
          throw Error("launch an all-reduce", communicator.failure_text());
        }
      };
    } else if (way == "nccl") {
      reduce = [nccl, rows, hidden, sum](const void* in, cudaStream_t stream) {
        if (!nccl->all_reduce(in, sum, rows * hidden, stream))
          throw Error("launch NCCL's all-reduce", nccl->describe());
      };
    } else if (way != "none") {
      throw Error("measure " + way, "there is no such way", "Give fused, unfused, nccl, none");
    }
    return [reduce, rows, hidden, sum](const void* in, void* residual, const void* weight, void* norm,
                                       cudaStream_t stream) {
      if (reduce) reduce(in, stream);
      add_and_norm(reduce ? sum : in, residual, weight, norm, rows, hidden, stream);
    };
  }

  void take_turn(Graph& graph, const std::string& way, const DecodeShape& shape, cuda::Communicator& communicator,
                 bool warm_up, cudaStream_t stream) {
    constexpr int kReplays = 4;
    cudaEvent_t began = nullptr, ended = nullptr;
    check_cuda(cudaEventCreate(&began), "create an event");
    check_cuda(cudaEventCreate(&ended), "create an event");
    const std::uint64_t before = communicator.journal().operations;
    for (int i = 0; i < kReplays; ++i) {
      line_.arrive_and_wait();
      float elapsed = 0;
      cudaEventRecord(began, stream);
      check_cuda(cudaGraphLaunch(graph.executable, stream), "launch a graph");
      cudaEventRecord(ended, stream);
      check_cuda(cudaEventSynchronize(ended), "replay a graph");
      check_cuda(cudaEventElapsedTime(&elapsed, began, ended), "take the time");
      if (!warm_up && i > 0) graph.times.push_back(elapsed / static_cast<float>(arguments_.tokens));
    }
    // The path that is claimed is the path that was taken.
    const std::uint64_t ours = communicator.journal().operations - before;
    const auto expected = way == "fused" || way == "unfused"
                              ? 2 * shape.model.layers * static_cast<std::size_t>(arguments_.tokens * kReplays)
                              : 0;
    if (ours != expected) {
      throw Error("measure " + way, std::to_string(ours) + " operations of ours ran instead of " +
                                        std::to_string(expected) + "; " + communicator.failure_text());
    }
    cudaEventDestroy(began);
    cudaEventDestroy(ended);
  }

  void report(const DecodeShape& shape, const Place& place, std::vector<Graph>& graphs) {
    std::vector<Result> of_shape;
    for (std::size_t i = 0; i < graphs.size(); ++i) {
      samples_[static_cast<std::size_t>(place.rank)] = graphs[i].times;
      line_.arrive_and_wait();
      if (place.rank == 0) {
        std::vector<float> slowest = samples_[0];
        for (const auto& of_rank : samples_) {
          for (std::size_t at = 0; at < slowest.size(); ++at) slowest[at] = std::max(slowest[at], of_rank[at]);
        }
        std::ranges::sort(slowest);
        of_shape.push_back({shape.model.name, arguments_.ways[i], shape.shards, shape.batch,
                            slowest[slowest.size() / 2], slowest[slowest.size() * 99 / 100], 0});
      }
      line_.arrive_and_wait();
    }
    if (place.rank != 0) return;
    const auto none = std::ranges::find(of_shape, "none", &Result::way);
    for (Result& result : of_shape) {
      if (none != of_shape.end()) result.ratio = result.p50_ms / none->p50_ms;
      const std::string label = shape.shards == static_cast<std::size_t>(arguments_.ranks)
                                    ? "TP=" + std::to_string(shape.shards)
                                    : "compute of TP=" + std::to_string(shape.shards) + ", communication of " +
                                          std::to_string(arguments_.ranks);
      std::printf("%-10s %-36s batch %3zu  %-8s p50 %8.3f  p99 %8.3f ms/token  ratio %.3f\n", result.model.c_str(),
                  label.c_str(), result.batch, result.way.c_str(), result.p50_ms, result.p99_ms, result.ratio);
      results_.push_back(result);
    }
    std::fflush(stdout);
  }

  void write_json() const {
    std::FILE* file = std::fopen(arguments_.json.c_str(), "w");
    if (file == nullptr) throw Error("write " + arguments_.json, "it cannot be opened");
    cudaDeviceProp properties{};
    cudaGetDeviceProperties(&properties, 0);
    std::fprintf(file, "{\"gpu\": \"%s\", \"gpus\": %d, \"ranks\": %d, \"context\": %zu,\n", properties.name, devices_,
                 arguments_.ranks, arguments_.context);
    std::fprintf(file, " \"what\": \"milliseconds of a decode token, slowest rank\",\n \"results\": [");
    for (const Result& result : results_) {
      std::fprintf(file,
                   "%s\n  {\"model\": \"%s\", \"shards\": %zu, \"batch\": %zu, \"way\": \"%s\", \"p50_ms\": %.4f, "
                   "\"p99_ms\": %.4f, \"ratio\": %.4f}",
                   &result == results_.data() ? "" : ",", result.model.c_str(), result.shards, result.batch,
                   result.way.c_str(), result.p50_ms, result.p99_ms, result.ratio);
    }
    std::fprintf(file, "\n ]}\n");
    std::fclose(file);
  }

  Arguments arguments_;
  int devices_;
  StartLine line_;
  std::vector<cuda::Bytes> given_;
  std::vector<std::vector<float>> samples_;
  std::vector<Result> results_;
};

int run_decode(int argc, char** argv) {
  Arguments arguments = arguments_of(argc, argv);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "gpu_decode: there is no GPU here\n");
    return 77;
  }
  if (arguments.ranks == 0) arguments.ranks = std::max(devices, 2);
  return DecodeRun(std::move(arguments), devices).go();
}

}  // namespace
}  // namespace tensorwire::bench

int main(int argc, char** argv) {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  // cuBLASLt's kernels must be there before one of them waits behind an operation.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  try {
    return tensorwire::bench::run_decode(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_decode: %s\n", error.what());
    return 2;
  }
}
