// The extended way of reading completions: start_poll, next_poll, read_*(), end_poll.
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"
#include "ibverbs/translate.hpp"

namespace tensorwire::ibverbs {

namespace {

/// Makes the next completion the current one; ENOENT when there is none, EIO when some were lost.
int advance(CompletionQueue& cq) noexcept {
  if (cq.engine->poll({&cq.current, 1}) == 0) return cq.engine->overrun() ? fail_overrun(cq) : ENOENT;
  cq.wr_id = cq.current.wr_id;
  cq.status = static_cast<ibv_wc_status>(cq.current.status);
  return 0;
}

int start_poll(ibv_cq_ex* base, ibv_poll_cq_attr* attributes) noexcept {
  if (attributes->comp_mask != 0) return EINVAL;
  CompletionQueue& cq = of(base);
  if (!cq.single_threaded) cq.poll_mutex.lock();
  const int result = advance(cq);
  // No end_poll follows a start that found nothing.
  if (result != 0 && !cq.single_threaded) cq.poll_mutex.unlock();
  return result;
}

int next_poll(ibv_cq_ex* cq) noexcept { return advance(of(cq)); }

void end_poll(ibv_cq_ex* cq) noexcept {
  if (!of(cq).single_threaded) of(cq).poll_mutex.unlock();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) noexcept { return static_cast<ibv_wc_opcode>(of(cq).current.opcode); }
std::uint32_t read_vendor_err(ibv_cq_ex* cq) noexcept { return of(cq).current.vendor_error; }
std::uint32_t read_byte_len(ibv_cq_ex* cq) noexcept { return of(cq).current.byte_len; }
__be32 read_imm_data(ibv_cq_ex* cq) noexcept { return immediate_or_key(of(cq).current); }
std::uint32_t read_qp_num(ibv_cq_ex* cq) noexcept { return of(cq).current.qp_num; }
std::uint32_t read_src_qp(ibv_cq_ex* cq) noexcept { return of(cq).current.src_qp; }
unsigned read_wc_flags(ibv_cq_ex* cq) noexcept { return of(cq).current.flags; }

// RoCE has no LIDs; the last five are of features that create_cq_ex refuses.
std::uint32_t read_slid(ibv_cq_ex*) noexcept { return 0; }
std::uint8_t read_sl(ibv_cq_ex* cq) noexcept { return service_level(of(cq).current); }
std::uint8_t read_dlid_path_bits(ibv_cq_ex*) noexcept { return 0; }
std::uint64_t read_completion_ts(ibv_cq_ex*) noexcept { return 0; }
std::uint16_t read_cvlan(ibv_cq_ex*) noexcept { return 0; }
std::uint32_t read_flow_tag(ibv_cq_ex*) noexcept { return 0; }
void read_tm_info(ibv_cq_ex*, ibv_wc_tm_info* info) noexcept { *info = {}; }
std::uint64_t read_completion_wallclock_ns(ibv_cq_ex*) noexcept { return 0; }

}  // namespace

void set_poll_functions(CompletionQueue& cq) noexcept {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  cq.read_byte_len = read_byte_len;
  cq.read_imm_data = read_imm_data;
  cq.read_qp_num = read_qp_num;
  cq.read_src_qp = read_src_qp;
  cq.read_wc_flags = read_wc_flags;
  cq.read_slid = read_slid;
  cq.read_sl = read_sl;
  cq.read_dlid_path_bits = read_dlid_path_bits;
  cq.read_completion_ts = read_completion_ts;
  cq.read_cvlan = read_cvlan;
  cq.read_flow_tag = read_flow_tag;
  cq.read_tm_info = read_tm_info;
  cq.read_completion_wallclock_ns = read_completion_wallclock_ns;
}

}  // namespace tensorwire::ibverbs
