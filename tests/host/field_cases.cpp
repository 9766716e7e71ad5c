// Public bug reports that one host can show, each with the state that was reported.
#include <cerrno>

#include "host/rule_case.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

const std::vector<RuleCase> kCases = {
    {"Nccl769_LinkLocalIndex1",
     Kind::kMlx5,
     [](TestHost& host) {
       host.set("NCCL_IB_GID_INDEX", "1")
           .log("NCCL WARN Call to ibv_modify_qp failed with error Connection timed out\n");
     },
     {"GID-003", "NCCL-013"},
     "unset NCCL_IB_GID_INDEX"},
};

}  // namespace

std::span<const RuleCase> field_cases() { return kCases; }

}  // namespace tensorwire::host::test
