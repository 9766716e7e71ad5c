#include "softhca/counters.hpp"

namespace tensorwire::softhca {

void visit_engine_counters(const transport::EngineCounters& counters, const Link::CounterSink& sink) {
  sink("port_xmit_packets", counters.tx_packets);
  sink("tx_payload_bytes", counters.tx_bytes);
  sink("port_rcv_packets", counters.rx_packets);
  sink("rx_payload_bytes", counters.rx_bytes);
  sink("retransmitted_packets", counters.retransmitted_packets);
  sink("out_of_sequence", counters.out_of_sequence);
  sink("packet_seq_err", counters.packet_seq_err);
  sink("local_ack_timeout_err", counters.local_ack_timeout_err);
  sink("duplicate_request", counters.duplicate_request);
  sink("implied_nak_seq_err", counters.implied_nak_seq_err);
  sink("rx_read_requests", counters.rx_read_requests);
  sink("rx_atomic_requests", counters.rx_atomic_requests);
  sink("rnr_nak_retry_err", counters.rnr_nak_retry_err);
  sink("out_of_buffer", counters.out_of_buffer);
  sink("req_remote_access_errors", counters.req_remote_access_errors);
  sink("req_remote_invalid_request", counters.req_remote_invalid_request);
  sink("req_cqe_error", counters.req_cqe_error);
  sink("req_cqe_flush_error", counters.req_cqe_flush_error);
  sink("resp_remote_access_errors", counters.resp_remote_access_errors);
  sink("resp_local_length_error", counters.resp_local_length_error);
  sink("resp_cqe_error", counters.resp_cqe_error);
  sink("resp_cqe_flush_error", counters.resp_cqe_flush_error);
  sink("np_ecn_marked_roce_packets", counters.np_ecn_marked_roce_packets);
  sink("np_cnp_sent", counters.np_cnp_sent);
  sink("rp_cnp_handled", counters.rp_cnp_handled);
  sink("rp_cnp_ignored", counters.rp_cnp_ignored);
  sink("qkey_viol_cntr", counters.qkey_viol_cntr);
  sink("rx_dropped", counters.rx_dropped);
}

}  // namespace tensorwire::softhca
