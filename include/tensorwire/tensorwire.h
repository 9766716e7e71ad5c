/* Tensorwire's C API: collectives between the processes ("ranks") of a job, over RoCEv2 and without a RDMA NIC where
 * there is none. Link with -ltensorwire. The shape is that of NCCL; what is different is said where it is.
 *
 * Buffers are host memory, and `stream` is NULL; or they are memory of a GPU, see "GPUs" below. `count` counts
 * elements. A collective is called by every rank of the communicator in the same order, with the same count, type,
 * operator and root; ranks that disagree all get an error that names the rank and the difference, and no byte of their
 * buffers is overwritten by another rank. A call returns when its result is complete and its buffers are no longer
 * needed; between twGroupStart and twGroupEnd, when the group ends.
 *
 * Errors: every function returns a twResult_t. twGetLastError says in one line what happened, who is to blame and what
 * to do. Invalid arguments and invalid usage leave the communicator as it was; any other error is final: each later
 * call on that communicator returns it again. No call waits without a wall-clock bound (twConfig_t.operationTimeoutMs).
 *
 * Threads: different communicators may be used by different threads at the same time. One communicator is used by one
 * thread at a time; a second one gets twInvalidUsage. From any thread, at any time until twCommDestroy: twCommAbort,
 * twCommRequestAbort, twCommGetAsyncError, twGetLastError, twCommCount, twCommUserRank. In a signal handler:
 * twCommRequestAbort only. After fork(), the child may not use its parent's communicators. */
#ifndef TENSORWIRE_TENSORWIRE_H
#define TENSORWIRE_TENSORWIRE_H

#include <limits.h>
#include <stddef.h>

#define TENSORWIRE_MAJOR 0
#define TENSORWIRE_MINOR 1
#define TENSORWIRE_PATCH 0
/* 10000 * major + 100 * minor + patch, as twGetVersion returns it. */
#define TENSORWIRE_VERSION (10000 * TENSORWIRE_MAJOR + 100 * TENSORWIRE_MINOR + TENSORWIRE_PATCH)

#if defined(__GNUC__)
#define TW_API __attribute__((visibility("default")))
#else
#define TW_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One rank's end of a communicator. */
typedef struct twComm* twComm_t;

/* Numbers up to 7 mean what they mean in NCCL. */
typedef enum {
  twSuccess = 0,
  twSystemError = 2,     /* the operating system or the transport failed */
  twInternalError = 3,   /* a defect of this library, or memory ran out */
  twInvalidArgument = 4, /* an argument makes no sense; nothing was sent */
  twInvalidUsage = 5,    /* the call may not be made now; nothing was sent */
  twRemoteError = 6,     /* another rank died or gave up */
  twInProgress = 7,      /* twCommGetAsyncError: set-up is still under way */
  twTimeout = 8,         /* not over within the operation's bound */
  twDisagreement = 9,    /* the ranks made different calls */
  twAborted = 10         /* by twCommAbort or twCommRequestAbort of this rank */
} twResult_t;

/* Element types; the numbers are NCCL's. */
typedef enum {
  twInt32 = 2,
  twInt = 2,
  twFloat16 = 6,
  twHalf = 6,
  twFloat32 = 7,
  twFloat = 7,
  twBfloat16 = 9,
  /* What quantised outputs of twFusedAllReduceRmsNorm have; no operation takes them as its type. */
  twInt8 = 0,
  twFloat8e4m3 = 10
} twDataType_t;

/* Operators; the numbers are NCCL's. fp16 and bf16 are accumulated in fp32 and rounded once; see docs/collectives.md.
 */
typedef enum { twSum = 0, twMax = 2, twAvg = 4 } twRedOp_t;

#define TW_UNIQUE_ID_BYTES 128
/* Where the ranks of one communicator meet, and the secret that lets them in: treat it like a password. Plain bytes:
 * send it to the other ranks by any means. */
typedef struct {
  char internal[TW_UNIQUE_ID_BYTES];
} twUniqueId;

/* "Use the default", for every int of twConfig_t. */
#define TW_UNDEFINED INT_MIN

typedef enum {
  twPathAuto = 0,   /* the same-host link where the HCA has one and the peer is on this host, else RoCEv2 packets */
  twPathPackets = 1 /* RoCEv2 packets always */
} twPath_t;

/* What an algorithm may do to the order in which the ranks' values are added. Whatever it is, all ranks get the same
 * bits, in every run. */
typedef enum {
  twOrderAny = 0,           /* fixed for each size and algorithm */
  twOrderRank = 1,          /* ((x0 + x1) + x2) + ..., in fp32, rounded once */
  twOrderBatchInvariant = 2 /* an element's sum does not depend on where it lies, nor on how many there are */
} twOrder_t;

/* How a communicator is made. Begin with TW_CONFIG_INITIALIZER and set what you want. `depth`, `slotBytes`
 * and `order` must be the same on all ranks. */
typedef struct {
  size_t size;        /* sizeof(twConfig_t), by the initializer */
  int blocking;       /* 1 (default); 0: twCommInit* return at once with twInProgress and set-up goes on in a thread */
  const char* device; /* NULL: TENSORWIRE_DEVICE, else automatic; "soft", "mlx5_0", "mlx5_0:1" */
  int gidIndex;       /* default: TENSORWIRE_GID_INDEX, else the routable RoCE v2 entry is looked up */
  int path;           /* a twPath_t */
  int queuePairsPerPeer;  /* default 1 */
  int dscp;               /* 0 to 63, default 26 */
  int depth;              /* messages in flight from each rank to each other one, 2 to 64; default 2 */
  int slotBytes;          /* of each such message: a multiple of 64; default 256 KiB, less with more than 16 ranks */
  int operationTimeoutMs; /* bound of one operation, default 60000; 0: never */
  int warningMs;          /* a log line names the rank that is waited for after so long, default 1000; 0: never */
  int order;              /* a twOrder_t; default twOrderAny */
} twConfig_t;

#define TW_CONFIG_INITIALIZER                                                                                     \
  {                                                                                                               \
    sizeof(twConfig_t), TW_UNDEFINED, NULL, TW_UNDEFINED, TW_UNDEFINED, TW_UNDEFINED, TW_UNDEFINED, TW_UNDEFINED, \
        TW_UNDEFINED, TW_UNDEFINED, TW_UNDEFINED, TW_UNDEFINED                                                    \
  }

/* ---- Library ------------------------------------------------------------------------------------------------------
 */

/* @errors twInvalidArgument */
TW_API twResult_t twGetVersion(int* version);

/* A few words for a result; never NULL. */
TW_API const char* twGetErrorString(twResult_t result);

/* The line of the last error of this communicator, or with NULL of this thread's last call without one. "" when there
 * was none. The text is valid until this thread's next call of twGetLastError. */
TW_API const char* twGetLastError(twComm_t comm);

/* ---- Communicators ------------------------------------------------------------------------------------------------
 */

/* Makes an id for one communicator. To be called in the process of rank 0, which keeps a port open until it joins.
 * @errors twInvalidArgument, twSystemError */
TW_API twResult_t twGetUniqueId(twUniqueId* id);

/* Rank `rank` of `nranks` joins; returns when all are in, or after TENSORWIRE_BOOTSTRAP_TIMEOUT (60 s) with a line that
 * names the ranks that are missing. On an error *comm is NULL. Within a group twGroupEnd waits instead, so that one
 * thread can make several ranks.
 * @errors twInvalidArgument, twSystemError (no device, no memory, ranks of other options), twRemoteError (ranks
 * missing)
 */
TW_API twResult_t twCommInitRank(twComm_t* comm, int nranks, twUniqueId id, int rank);
/* The same with a configuration; NULL for the defaults. */
TW_API twResult_t twCommInitRankConfig(twComm_t* comm, int nranks, twUniqueId id, int rank, const twConfig_t* config);
/* The ranks are those of the launcher (torchrun, mpirun, a PMI launcher, srun), as its environment says: RANK,
 * WORLD_SIZE, MASTER_ADDR, MASTER_PORT and their like. No id is needed. Once for each run of the job's processes at a
 * time.
 * @errors as above, twInvalidUsage when no launcher's variables are there */
TW_API twResult_t twCommInitFromEnv(twComm_t* comm, const twConfig_t* config);

/* twSuccess; twInProgress while a non-blocking set-up goes on; else the error that ended this communicator. Where
 * another rank has died, given up or disagreed, that shows here before this rank's next call ends by it, too.
 * @errors twInvalidArgument */
TW_API twResult_t twCommGetAsyncError(twComm_t comm, twResult_t* state);

/* @errors twInvalidArgument, twInvalidUsage while set-up goes on */
TW_API twResult_t twCommCount(twComm_t comm, int* nranks);
TW_API twResult_t twCommUserRank(twComm_t comm, int* rank);

/* Waits (5 s at most) until every peer has got what it needs of this rank, then gives back queue pairs, scratch memory
 * and threads. Only twCommDestroy and the questions above may follow. All ranks call it.
 * @errors twInvalidArgument, twInvalidUsage */
TW_API twResult_t twCommFinalize(twComm_t comm);
/* twCommFinalize where that was not called, then frees the handle. NULL is fine. */
TW_API twResult_t twCommDestroy(twComm_t comm);

/* Ends the communicator at once, here and on all other ranks: an operation under way in another thread returns
 * twAborted within milliseconds, theirs twRemoteError. Everything is given back but the handle, so that the other
 * thread finds a communicator that says twAborted: unlike NCCL, call twCommDestroy afterwards.
 * @errors twInvalidArgument */
TW_API twResult_t twCommAbort(twComm_t comm);
/* Asks for the same from a signal handler: the operation under way, or the next one, returns twAborted.
 * Async-signal-safe.
 * @errors twInvalidArgument */
TW_API twResult_t twCommRequestAbort(twComm_t comm);

/* Makes new communicators of the ranks that give the same `color`, ranked by `key` and, where keys are alike, as in
 * `comm`. All ranks of `comm` call it. With TW_SPLIT_NOCOLOR a rank takes part and *made becomes NULL. config NULL: as
 * `comm`.
 * @errors as twCommInitRank, twInvalidUsage within a group */
#define TW_SPLIT_NOCOLOR (-1)
TW_API twResult_t twCommSplit(twComm_t comm, int color, int key, twComm_t* made, const twConfig_t* config);

/* Makes a communicator of the ranks of `comm` without the `excludeCount` ones in `excludeRanks`: those that died, hang
 * or are to go. They keep their order. All ranks that go on call it with the same list, in any order; the others do not
 * call it. It works on a communicator that is well, that an error ended, or that was aborted, and waits for the ranks
 * that go on for TENSORWIRE_BOOTSTRAP_TIMEOUT at most, naming those that did not come; then it can be called again,
 * also with a longer list. Where it succeeds, `comm` is over: only questions and twCommDestroy may follow. Its queue
 * pairs are in error and all its memory is deregistered, so that nothing of an excluded rank arrives any more; one that
 * was only stopped learns from its next operation that the others went on.
 *
 * `flags`: TW_SHRINK_DEFAULT, where no rank that goes on has an operation under way that waits for an excluded one; or
 * TW_SHRINK_ABORT, which ends what is under way first, on all ranks and in other threads of this one. config NULL: as
 * `comm`. It returns when the new communicator is ready, whatever config->blocking says.
 * @errors twInvalidArgument, twInvalidUsage, twRemoteError (ranks missing, of other lists or options), twSystemError */
#define TW_SHRINK_DEFAULT 0
#define TW_SHRINK_ABORT 1
TW_API twResult_t twCommShrink(twComm_t comm, const int* excludeRanks, int excludeCount, twComm_t* newcomm,
                               const twConfig_t* config, int flags);

/* What a communicator has done, since it was made. */
typedef struct {
  unsigned long long operations;   /* that completed on this rank; on a GPU: that began, replays of graphs among them */
  unsigned long long bytes;        /* of the tensors, as the caller counts */
  unsigned long long bytesWritten; /* to peers, headers included */
  unsigned long long bytesCopied;  /* by the CPU, reductions aside; all-reduces above 1 MiB need none */
} twStats_t;
/* @errors twInvalidArgument, twInvalidUsage */
TW_API twResult_t twCommGetStats(twComm_t comm, twStats_t* stats);

/* ---- Groups ---------------------------------------------------------------------------------------------------------
 */

/* What this thread asks for between the two, also of several communicators, runs together when the outermost group
 * ends: of each communicator the collectives in the order of the calls, then all sends and receives at once. So ranks
 * can exchange messages, or name communicators in different orders, without waiting for each other forever. Arguments
 * are checked at each call; a call that returned an error is not part of the group. twGroupEnd returns the first error.
 * @errors those of the calls; twInvalidUsage without a twGroupStart */
TW_API twResult_t twGroupStart(void);
TW_API twResult_t twGroupEnd(void);

/* ---- Collectives --------------------------------------------------------------------------------------------------
 */

/* Buffers may be in place as each call says; any other overlap is refused. All have
 * @errors twInvalidArgument, twInvalidUsage, and the final ones. */

/* recv[i] = op over all ranks of send[i], for i in [0, count). In place: recv == send. The result has the same bits on
 * all ranks and in every run. */
TW_API twResult_t twAllReduce(const void* send, void* recv, size_t count, twDataType_t dtype, twRedOp_t op,
                              twComm_t comm, void* stream);
/* recv[i] = op over all ranks of send[rank * recvcount + i]: send has nranks * recvcount elements.
 * In place: recv == send + rank * recvcount. */
TW_API twResult_t twReduceScatter(const void* send, void* recv, size_t recvcount, twDataType_t dtype, twRedOp_t op,
                                  twComm_t comm, void* stream);
/* recv[r * sendcount + i] = send[i] of rank r: recv has nranks * sendcount elements.
 * In place: send == recv + rank * sendcount. */
TW_API twResult_t twAllGather(const void* send, void* recv, size_t sendcount, twDataType_t dtype, twComm_t comm,
                              void* stream);
/* recv[i] = send[i] of `root`; send counts on the root only. In place: recv == send. */
TW_API twResult_t twBroadcast(const void* send, void* recv, size_t count, twDataType_t dtype, int root, twComm_t comm,
                              void* stream);
/* recv[r * count + i] = send[rank * count + i] of rank r: both have nranks * count elements. In place: recv == send. */
TW_API twResult_t twAllToAll(const void* send, void* recv, size_t count, twDataType_t dtype, twComm_t comm,
                             void* stream);
/* Rank i sends counts[i * nranks + j] elements to rank j; in send and recv the blocks lie one behind the other, by
 * rank. All ranks give the same nranks * nranks counts. Not in place. */
TW_API twResult_t twAllToAllv(const void* send, void* recv, const size_t* counts, twDataType_t dtype, twComm_t comm,
                              void* stream);
/* Returns when every rank has called it. */
TW_API twResult_t twBarrier(twComm_t comm, void* stream);

/* One message from a rank to another, which calls twRecv with the same count and type. Messages between two ranks keep
 * their order. Outside of a group twSend returns when the peer has received, or its library holds, the message. A rank
 * may send to itself within a group. */
TW_API twResult_t twSend(const void* send, size_t count, twDataType_t dtype, int peer, twComm_t comm, void* stream);
TW_API twResult_t twRecv(void* recv, size_t count, twDataType_t dtype, int peer, twComm_t comm, void* stream);

/* ---- GPUs -----------------------------------------------------------------------------------------------------------
 */

/* Every operation above also takes memory of a GPU: send and recv both on the GPU that twCommInitGpu was given,
 * `stream` a cudaStream_t of it (NULL: the default stream). The call enqueues one kernel and returns; the result is
 * there in the order of the stream. The call may be captured into a graph, and nothing of its order is fixed then:
 * graphs and eager calls may follow each other in any order that is the same on all ranks. Operations of one
 * communicator may be on several streams where events order them. Within a group, sends and receives become one kernel
 * when the group ends.
 *
 * An error on the GPU, a rank that does not come for operationTimeoutMs among them, is told by twCommGetAsyncError and
 * by the next call; kernels that wait return then, and those that follow do nothing. Ranks that disagree about a call
 * are found by that bound.
 *
 * Where the ranks' GPUs cannot reach each other's memory (other hosts, no NVLink or PCIe peer access), a thread of the
 * host carries what kernels hand it, over RDMA; a log line says so once. Messages, and blocks of unequal size, are then
 * copied through host memory, as is everything with TENSORWIRE_PATH=host: such a call waits for the stream, and cannot
 * be captured. */

/* Makes the communicator ready for GPU memory. All ranks call it, each with its GPU (a number of CUDA's runtime; -1:
 * the current device of the calling thread). Ranks may share a GPU. Loads all kernels, so that nothing is left to be
 * done when a graph is captured. Without it the first collective on GPU memory does the same with the GPU of its
 * buffers, if its stream is not being captured. A second call does nothing.
 * @errors twInvalidArgument, twInvalidUsage, twSystemError (no CUDA in this build, no driver, no such GPU) */
TW_API twResult_t twCommInitGpu(twComm_t comm, int device);

/* How the operations on GPU memory travel: "peer" (between GPUs' memories), "proxy" (a thread of the host carries what
 * kernels hand it), "hierarchical" (all-reduces as "peer" inside each host and as "proxy" between hosts; all else as
 * "proxy"), "host" (each call copies), or "" before twCommInitGpu. The text is valid as long as the library.
 * @errors twInvalidArgument, twInvalidUsage */
TW_API twResult_t twCommGpuPath(twComm_t comm, const char** path);

/* What a decode step does after each row-parallel matrix product, for twFusedAllReduceRmsNorm. Memory of the GPU,
 * tensors aligned to 16 bytes and contiguous, `rows` x `hidden` elements where not said otherwise. A row is a whole
 * number of 16-byte units. Begin with TW_FUSED_RMS_NORM_INITIALIZER. */
typedef struct {
  size_t size;            /* sizeof(twFusedRmsNorm_t), by the initializer */
  const void* in;         /* this rank's part of the sum */
  const void* residualIn; /* the same on all ranks */
  const void* weight;     /* `hidden` elements */
  void* residualOut;      /* sum over ranks of in, rounded; + residualIn, rounded. May be `in` or `residualIn` */
  void* normOut;          /* residualOut of each row / sqrt(mean of its squares + epsilon) * weight. May be `in` */
  size_t rows;            /* tokens */
  size_t hidden;
  float epsilon; /* default 1e-6 */
  int onePlus;   /* 1: * (1 + weight), as Gemma does; default 0 */

  /* The norm once more, quantised; normOut may be NULL then. One byte an element, aligned to 8. */
  void* quantOut; /* NULL: not wanted */
  int quantType;  /* twFloat8e4m3 or twInt8 */
  /* quantOut = normOut / scale, rounded to nearest even, at most the type's largest in magnitude (448, 127). With
   * quantScale (a float of the GPU) that is the scale; without, each row has its own, its largest magnitude / 448
   * (127), which goes to rowScales. */
  const float* quantScale;
  float* rowScales; /* `rows` floats of the GPU */
} twFusedRmsNorm_t;

#define TW_FUSED_RMS_NORM_INITIALIZER \
  { sizeof(twFusedRmsNorm_t), NULL, NULL, NULL, NULL, NULL, 0, 0, 1e-6F, 0, NULL, 0, NULL, NULL }

/* All-reduce, residual addition and RMSNorm in one kernel; fp16, bf16 and fp32, accumulated in fp32. All ranks get the
 * same bits.
 * @errors twInvalidArgument (alignment, a row too long for the kernel), twInvalidUsage (GPUs that do not reach each
 * other, or no twCommInitGpu before), and the final ones */
TW_API twResult_t twFusedAllReduceRmsNorm(const twFusedRmsNorm_t* what, twDataType_t dtype, twComm_t comm,
                                          void* stream);

/* ---- Memory -------------------------------------------------------------------------------------------------------
 */

/* Any host memory can be used. Operations register it with the HCA at its first use, and keep it registered: before
 * memory that was used is unmapped (as free() does with large blocks) while the communicator lives, call twCommForget.
 * Memory that cannot be registered is copied to memory that can; a log line says so once. */
TW_API twResult_t twCommForget(twComm_t comm, const void* address, size_t bytes);

/* Zeroed memory, in huge pages where the system has them: what is fastest to register and to send from.
 * @errors twInvalidArgument, twSystemError */
TW_API twResult_t twMemAlloc(void** address, size_t bytes);
/* @errors twInvalidArgument for what twMemAlloc did not give. NULL is fine. */
TW_API twResult_t twMemFree(void* address);

/* Memory that is registered ahead of its first use, for reading and for peers to write results into. All ranks call it,
 * each with memory of its own; all fail where one does. `flags` is TW_WINDOW_DEFAULT.
 * @errors twInvalidArgument, twInvalidUsage, twSystemError */
typedef struct twWindow* twWindow_t;
#define TW_WINDOW_DEFAULT 0
TW_API twResult_t twCommWindowRegister(twComm_t comm, void* address, size_t bytes, twWindow_t* window, int flags);
/* Before the memory is freed. The window is gone also where an error is returned. NULL is fine. */
TW_API twResult_t twCommWindowDeregister(twComm_t comm, twWindow_t window);

#ifdef __cplusplus
}
#endif

#endif
