// A rank in a process of its own: this program, started again with what it is to do in its environment.
#pragma once

namespace tensorwire::test {

[[nodiscard]] bool is_process_rank();
/// The exit status is the rank's verdict: 0, all was as it should be.
[[nodiscard]] int process_rank_main();

}  // namespace tensorwire::test
