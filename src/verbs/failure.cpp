#include "verbs/failure.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>

namespace tensorwire::verbs {

namespace {

struct StatusRow {
  ibv_wc_status status;
  const char* text;
  const char* cause;
  const char* remedy;
};

constexpr std::array kStatusTable{
    StatusRow{IBV_WC_LOC_LEN_ERR, "local length error (LOC_LEN_ERR)",
              "the message is longer than the receive buffer, or longer than the device allows",
              "Check that both ranks use the same sizes"},
    StatusRow{IBV_WC_LOC_QP_OP_ERR, "local queue-pair operation error (LOC_QP_OP_ERR)",
              "the device could not process the work request", "Look at dmesg and the device's firmware log"},
    StatusRow{IBV_WC_LOC_PROT_ERR, "local protection error (LOC_PROT_ERR)",
              "the local buffer is not covered by its memory region, or was unmapped or deregistered",
              "Keep buffers registered and mapped until their completion"},
    StatusRow{IBV_WC_WR_FLUSH_ERR, "work request flushed (WR_FLUSH_ERR)",
              "the queue pair was already in error: an earlier completion has the cause",
              "Look at the first failure of this queue pair"},
    StatusRow{IBV_WC_BAD_RESP_ERR, "bad response (BAD_RESP_ERR)", "the peer answered with an unexpected packet",
              "Check for a middlebox that alters packets, and both ends' firmware"},
    StatusRow{IBV_WC_LOC_ACCESS_ERR, "local access error (LOC_ACCESS_ERR)",
              "a write with immediate hit local memory without the rights for it",
              "Register the region with remote write access"},
    StatusRow{IBV_WC_REM_INV_REQ_ERR, "remote invalid request (REM_INV_REQ_ERR)",
              "the peer found the request malformed: too long for its receive, or an operation it did not enable",
              "Check that both ranks run the same version and sizes"},
    StatusRow{IBV_WC_REM_ACCESS_ERR, "remote access error (REM_ACCESS_ERR)",
              "the rkey or the range is wrong at the peer, or its region was deregistered",
              "The peer may have torn down its communicator; if not, this is a bug of the sender"},
    StatusRow{IBV_WC_REM_OP_ERR, "remote operation error (REM_OP_ERR)",
              "the peer could not complete the request: its memory vanished or its device failed",
              "Look at the peer's log and dmesg"},
    StatusRow{IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded (RETRY_EXC_ERR)",
              "the peer does not answer: its process died, the route or a firewall drops UDP 4791, its GID is not "
              "RoCE v2, or the lossless class is not configured",
              "Check that the peer runs, ping its GID address, open UDP 4791, then check PFC and ECN of this DSCP"},
    StatusRow{IBV_WC_RNR_RETRY_EXC_ERR, "receiver-not-ready retries exceeded (RNR_RETRY_EXC_ERR)",
              "the peer had no receive posted for too long: it is stopped or far behind",
              "Look at what the peer's process is doing; a stopped process or a debugger does this"},
    StatusRow{IBV_WC_REM_ABORT_ERR, "remote abort (REM_ABORT_ERR)", "the peer aborted the operation",
              "Look at the peer's log"},
    StatusRow{IBV_WC_FATAL_ERR, "fatal device error (FATAL_ERR)", "the local device failed or was reset",
              "Look at dmesg; reset the device"},
    StatusRow{IBV_WC_RESP_TIMEOUT_ERR, "response timeout (RESP_TIMEOUT_ERR)", "the peer did not answer in time",
              "Check that the peer runs and the route to it"},
    StatusRow{IBV_WC_GENERAL_ERR, "general error (GENERAL_ERR)", "the device gave no detail",
              "Look at dmesg and the vendor error"},
};

const StatusRow* find_row(ibv_wc_status status) noexcept {
  for (const StatusRow& row : kStatusTable) {
    if (row.status == status) return &row;
  }
  return nullptr;
}

std::string who(const Endpoints& ends) {
  std::string peer = ends.peer_rank >= 0 ? fmt::format("rank {}", ends.peer_rank) : "a peer of unknown rank";
  if (!ends.peer_host.empty()) peer += " on " + ends.peer_host;
  return fmt::format("{} (local {} QPN {:#08x}, remote {} QPN {:#08x}, DSCP {})", peer, to_string(ends.local_gid),
                     ends.local_qpn, to_string(ends.remote_gid), ends.remote_qpn, ends.dscp);
}

const char* cause_of_post(int errno_value) noexcept {
  switch (errno_value) {
    case ENOMEM:
      return "the send queue is full: more requests are outstanding than it was made for";
    case EINVAL:
      return "the queue pair is not connected or went to error, or the request is malformed";
    default:
      return "the device refused the request";
  }
}

}  // namespace

std::string status_text(ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS) return "success";
  const StatusRow* row = find_row(status);
  return row != nullptr ? row->text : fmt::format("completion status {}", static_cast<int>(status));
}

ErrorParts explain_completion(const ibv_wc& completion, const std::string& operation, const Endpoints& ends) {
  const StatusRow* row = find_row(completion.status);
  std::string why = status_text(completion.status);
  if (completion.vendor_err != 0) why += fmt::format(", vendor error {:#x}", completion.vendor_err);
  why += fmt::format(": {}", row != nullptr ? row->cause : "the status is unknown to this version");
  return {fmt::format("{} with {}", operation, who(ends)), std::move(why), row != nullptr ? row->remedy : ""};
}

ErrorParts explain_post(int errno_value, const std::string& operation, const Endpoints& ends) {
  return {fmt::format("post {} for {}", operation, who(ends)),
          fmt::format("{}: {}", errno_text(errno_value), cause_of_post(errno_value)),
          "Look at the first failure of this queue pair; if there is none, this is a bug of the sender"};
}

}  // namespace tensorwire::verbs
