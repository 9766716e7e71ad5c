// What an NCCL debug log (NCCL_DEBUG=INFO) says about the network, with the numbers of the lines.
#pragma once

#include <string>
#include <vector>

namespace tensorwire::host {

/// A line that says what happened.
struct LogLine {
  std::size_t number = 0;
  std::string text;
};

/// `Got completion ... with status=12 ... vendor err 129`, in any of its forms.
struct FailedCompletion {
  LogLine line;
  int status = 0;
  int vendor_error = 0;
};

/// `Call to ibv_modify_qp failed with 110 Connection timed out ... local GID ... remote GID ...`.
struct FailedConnect {
  LogLine line;
  int error = 0;                      ///< errno
  std::string local_gid, remote_gid;  ///< empty in old versions
};

/// `Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA`: one end of a channel between hosts.
struct NetChannel {
  std::size_t line = 0;
  std::string channel;  ///< "00/0"
  int from = -1, to = -1;
  bool sends = false;
  std::string network;  ///< "IB/0", "Socket/0"
  bool gdr = false;     ///< from GPU memory without a stop in the host's
};

struct NcclLog {
  std::string path;
  std::string version;                   ///< "2.28.9"
  std::vector<LogLine> networks;         ///< `Using network IB`, `Using network Socket`
  std::vector<LogLine> without_device;   ///< `NET/IB : No device found.`
  std::vector<LogLine> without_library;  ///< `Failed to open libibverbs.so`
  std::vector<NetChannel> channels;
  std::vector<LogLine> gdr_disabled;    ///< `GPU Direct RDMA Disabled for ...`
  std::vector<LogLine> wrong_abi;       ///< `does not support the kernel ABI of`
  std::vector<LogLine> registration;    ///< `ibv_reg_mr... failed with error ...`
  std::vector<LogLine> port_errors;     ///< `Got async event : port error`
  std::vector<LogLine> violations;      ///< `local access violation work queue error`
  std::vector<LogLine> sparse_table;    ///< `read failed in ncclIbRoceGetVersionNum`
  std::vector<LogLine> lost_clearance;  ///< `completion for a CTS but retrieved an 'unused' request`
  std::vector<LogLine> refused;         ///< bootstrap: `Connection refused`, `No route to host`
  std::vector<LogLine> loopback;        ///< bootstrap over lo: `Using interface lo:127.0.0.1<0>`
  std::vector<FailedCompletion> completions;
  std::vector<FailedConnect> connects;
};

}  // namespace tensorwire::host
