// The CPU reduction, by dispatch level, type, operands and size, beside memcpy of as many bytes as it reads and writes.
// Bytes per second count every byte read and written; second_output is on, as in the two-shot all-reduce.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "collective/reduce.hpp"

namespace tensorwire::collective {
namespace {

void reduce_bench(benchmark::State& state, SimdLevel level, DType dtype, std::size_t operand_count) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::vector<std::byte>> inputs(operand_count, std::vector<std::byte>(bytes, std::byte{0x11}));
  std::vector<std::byte> output(bytes), second(bytes);
  std::vector<const std::byte*> operands;
  for (const auto& input : inputs) operands.push_back(input.data());
  for (auto _ : state) {
    reduce_at(level, {dtype}, operands, output.data(), second.data(), bytes / element_bytes(dtype));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes * (operand_count + 2)));
}

void copy_bench(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> from(bytes, std::byte{0x11}), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes * 2));
}

void register_all() {
  benchmark::RegisterBenchmark("memcpy", copy_bench)->Arg(16 << 10)->Arg(128 << 10)->Arg(4 << 20);
  for (const SimdLevel level : {SimdLevel::kScalar, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
    if (level > best_simd_level()) continue;
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
      for (const std::size_t operands : {2U, 4U, 8U}) {
        const std::string name = std::string{"reduce/"} + std::string{name_of(level)} + "/" +
                                 std::string{name_of(dtype)} + "/" + std::to_string(operands);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { reduce_bench(state, level, dtype, operands); })
            ->Arg(16 << 10)
            ->Arg(128 << 10)
            ->Arg(4 << 20);
      }
    }
  }
}

}  // namespace
}  // namespace tensorwire::collective

int main(int argc, char** argv) {
  tensorwire::collective::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
