// Prints what Tensorwire reads of an interface's DCB, for a test to hold against what iproute2's dcb prints.
#include <cstdio>
#include <string>

#include "host/tree/dcb_netlink.hpp"

int main(int argc, char** argv) {
  using namespace tensorwire::host;
  if (argc != 2) return 2;
  for (const auto ask : {ask_dcb_pfc, ask_dcb_app, ask_dcb_ets, ask_dcb_buffer, ask_dcbx}) {
    const Answer answer = ask(argv[1]);
    std::puts(answer.ok() ? answer.text.substr(0, answer.text.find('\n')).c_str() : answer.why().c_str());
  }
}
