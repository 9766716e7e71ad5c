// libibverbs.so of the wheel, which can hold no link: nothing of its own, but it needs libibverbs.so.1 beside it, so
// who opens it (NCCL does, by this name) finds all symbols of the one library, however often and by whichever name it
// is opened.
